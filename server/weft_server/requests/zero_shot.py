"""Holds the labels of a request to its picture: both become vectors of one space, and the nearest label wins.

Vectors of labels are kept. Texts that were not there before are embedded as others are, in runs with those of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_proto.bundle_rules import MAX_LABEL_CHARS, MAX_MATCHED_LABELS, label_text_fault
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest
from weft_server.models.label_embeddings import LabelEmbedding
from weft_server.requests.embed import run_together
from weft_server.requests.generate import classify

if TYPE_CHECKING:
    from weft_proto.v1 import bundle_pb2, classification_pb2
    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.sequence import FinishReason, Sequence
    from weft_server.source import Source

# Labels that are embedded together, if so many may wait.
_TOGETHER = 64
# Texts that a worker reads in one job: reading one takes less time than handing it over.
_A_JOB = 16


class ZeroShotMatch(NamedTuple):
    """A picture's probabilities, float32 [labels]; its sequence, and those of the labels that were not kept."""

    probabilities: np.ndarray
    picture: Sequence
    reason: FinishReason
    texts: list[Sequence]
    num_input_tokens: int
    num_cached_tokens: int


def texts_of(model: Model, request: classification_pb2.ClassifyRequest) -> list[str]:
    """Return the texts of a request's labels. Raises InvalidRequest when one is not what a request may bring."""
    count = len(request.labels)
    if not count:
        raise InvalidRequest("labels", f"are required: {model.name!r} has none of its own", "EMPTY_INPUT")
    if count > MAX_MATCHED_LABELS:
        raise InvalidRequest("labels", f"must be 1..{MAX_MATCHED_LABELS}, not {count}", "INPUT_TOO_LONG")
    places: dict[str, int] = {}
    for index, label in enumerate(request.labels):
        if not label.strip():
            raise InvalidRequest(f"labels[{index}]", "must not be empty", "EMPTY_INPUT")
        if len(label) > MAX_LABEL_CHARS:
            why = f"is {len(label)} characters long; at most {MAX_LABEL_CHARS} are taken"
            raise InvalidRequest(f"labels[{index}]", why, "INPUT_TOO_LONG")
        if (first := places.setdefault(label, index)) != index:
            raise InvalidRequest(f"labels[{index}]", f"is there already, as labels[{first}]")
    label_text = request.label_text or model.manifest.matching.label_text
    if fault := label_text_fault(label_text):
        raise InvalidRequest("label_text", fault)
    return [label_text.replace("{}", label) for label in request.labels]


async def match(call: RequestContext, model: Model, image: common_pb2.Image, texts: list[str]) -> ZeroShotMatch:
    """Return the probabilities of labels, as `texts_of` gives them, for a picture.

    The labels come first: a request with one that is refused costs no picture.

    Raises:
        RequestError: a label or the picture was refused, or there is no room, or the deadline passed.
    """
    kept = model.label_vectors
    found = [kept.find(call.tenant, text) for text in texts]
    missing = [index for index, vector in enumerate(found) if vector is None]
    num_cached = sum(vector.num_tokens for vector in found if vector)
    size = min(_TOGETHER, model.engine.max_queued(call.standing))
    embedded: list[Sequence] = []
    for start in range(0, len(missing), size):
        part = missing[start : start + size]
        sequences = await _embed(call, model, texts, part)
        for index, sequence in zip(part, sequences, strict=True):
            found[index] = vector = LabelEmbedding(sequence.reply.values, sequence.num_input_tokens)
            kept.keep(call.tenant, texts[index], vector)
        embedded += sequences
    picture, reason, values = await classify(call, model, lambda wanted: model.reader.read_image(image, wanted))
    vectors = [vector for vector in found if vector]
    probabilities = await model.work(lambda _: probabilities_of(values, vectors, model.manifest), call.deadline)
    num_tokens = picture.num_input_tokens + sum(vector.num_tokens for vector in vectors)
    return ZeroShotMatch(probabilities, picture, reason, embedded, num_tokens, num_cached)


async def _embed(call: RequestContext, model: Model, texts: list[str], part: list[int]) -> list[Sequence]:
    """Embed the texts of some labels, and return their sequences."""

    async def read() -> list[Source]:
        sources: list[Source] = []
        for start in range(0, len(part), _A_JOB):
            places = part[start : start + _A_JOB]

            def job(_: Wanted, places: list[int] = places) -> list[Source]:
                return [model.reader.read_text(texts[index], f"labels[{index}]") for index in places]

            sources += await model.work(job, call.deadline)
        return sources

    return await run_together(call, model, len(part), read)


def probabilities_of(
    picture: np.ndarray, labels: list[LabelEmbedding], manifest: bundle_pb2.BundleManifest
) -> np.ndarray:
    """Return the softmax of scale * cosine + bias over labels, or each sigmoid, float32 [labels].

    All vectors have the length 1. In float64, a label at a time, so that a cosine has the same bits beside any other
    labels.
    """
    exact, spec = picture.astype(np.float64), manifest.matching
    logits = spec.scale * np.array([np.add.reduce(label.values * exact) for label in labels]) + spec.bias
    if manifest.scoring == common_pb2.LABEL_SCORING_SIGMOID:
        # Neither way does an exponential overflow.
        small = np.exp(-np.abs(logits))
        sigmoids: np.ndarray = (np.where(logits < 0, small, 1) / (1 + small)).astype(np.float32)
        return sigmoids
    exponentials = np.exp(logits - logits.max())
    probabilities: np.ndarray = (exponentials / exponentials.sum()).astype(np.float32)
    return probabilities
