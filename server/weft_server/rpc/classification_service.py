"""Classify and Tag: a text or a picture is put into a model's labels, or each token of a text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from weft_proto.v1 import classification_pb2, common_pb2
from weft_proto.v1.methods import METHODS
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.token_labels import TagInput, spans_of
from weft_server.requests.generate import classify, finishing, input_of
from weft_server.requests.zero_shot import match, texts_of
from weft_server.rpc.alignment import explain_rows, reading_of
from weft_server.rpc.responses import about

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    import numpy as np

    from weft_server.models.model import Model
    from weft_server.models.registry import ModelRegistry
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.prompts import Prompt
    from weft_server.requests.generate import Read

DEFAULT_TOP_K = 5
DEFAULT_THRESHOLD = 0.5


async def answer_classify(
    models: ModelRegistry, call: RequestContext, request: classification_pb2.ClassifyRequest
) -> Any:
    """Answer with the most probable labels."""
    kind = request.WhichOneof("input")
    if kind is None:
        raise InvalidRequest("input", "is required: text, token_ids or image", "EMPTY_INPUT")
    model = await models.take(call, request.model, *_tasks_of(request, kind))
    prompt = model.reader.prompts.of(request, (kind,))
    if model.manifest.HasField("matching"):
        return await _matched(call, model, request)
    _check_own(request, model)
    choice = choice_of(request, model.manifest.labels, model.manifest.scoring)
    with reading_of(model, request) as reading:
        read = _pair_of(model, request, kind, prompt)
        read = read or input_of(model, request, kind, model.languages.plain, prompt)
        sequence, reason, scores = await classify(call, model, read)
        answer = classification_pb2.ClassifyResponse(labels=choice.of(scores), **about(call, model, sequence))
        answer.scoring = model.manifest.scoring
        with finishing(model, (sequence,), reason):
            if reading:
                await explain_rows(answer.alignment, model, reading, sequence, [choice.best(scores)])
    return answer


async def answer_tag(models: ModelRegistry, call: RequestContext, request: classification_pb2.TagRequest) -> Any:
    """Answer with the most probable label of each token, and the spans they form."""
    kind = request.WhichOneof("input")
    if kind is None:
        raise InvalidRequest("input", "is required: text or token_ids", "EMPTY_INPUT")
    model = await models.take(call, request.model, *METHODS["Tag"].tasks)
    source = TagInput(model.reader, model.source_tokenizer, model.manifest.labels)
    with reading_of(model, request) as reading:
        read = (lambda _: source.read_text(request.text)) if kind == "text" else source.read_ids(request.token_ids)
        sequence, reason, probabilities = await classify(call, model, read)
        tokens = source.tokens(probabilities)
        spans = spans_of(tokens, request.text)
        answer = classification_pb2.TagResponse(tokens=tokens, spans=spans, **about(call, model, sequence))
        with finishing(model, (sequence,), reason):
            if reading:
                await explain_rows(answer.alignment, model, reading, sequence, source.pieces())
    return answer


def _pair_of(model: Model, request: classification_pb2.ClassifyRequest, kind: str, prompt: Prompt) -> Read | None:
    """Return what reads two texts, or None where there is one input."""
    if not request.text_pair:
        return None
    if kind != "text":
        raise InvalidRequest("text_pair", "needs text beside it")
    if not model.reader.takes_pairs:
        raise InvalidRequest("text_pair", f"is for models that take two texts, and {model.name!r} does not")
    return lambda _: model.reader.read_pair(request.text, request.text_pair, prompt=prompt)


def _tasks_of(request: classification_pb2.ClassifyRequest, kind: str) -> tuple[common_pb2.Task.ValueType, ...]:
    """Return what can answer a request. Where it names no model, its labels say which task is meant."""
    if request.label_text and not request.labels:
        raise InvalidRequest("label_text", "needs labels")
    if kind != "image":
        if request.labels:
            raise InvalidRequest("labels", "need an image to choose for")
        return (common_pb2.TASK_CLASSIFY_TEXT,)
    if request.labels:
        return common_pb2.TASK_MATCH, common_pb2.TASK_CLASSIFY_IMAGE
    return common_pb2.TASK_CLASSIFY_IMAGE, common_pb2.TASK_MATCH


def _check_own(request: classification_pb2.ClassifyRequest, model: Model) -> None:
    if request.labels:
        raise InvalidRequest("labels", f"are for models that take them, and {model.name!r} has labels of its own")


async def _matched(call: RequestContext, model: Model, request: classification_pb2.ClassifyRequest) -> Any:
    """Answer with the most probable of the request's own labels."""
    if request.text_pair:
        raise InvalidRequest("text_pair", "needs text beside it")
    texts = texts_of(model, request)
    choice = choice_of(request, request.labels, model.manifest.scoring)
    if not request.HasField("threshold"):
        # The best of a request's own labels is often under a half.
        choice = choice._replace(threshold=-math.inf)
    with reading_of(model, request) as reading:
        found = await match(call, model, request.image, texts)
        labels = choice.of(found.probabilities)
        sequences = (*found.texts, found.picture)
        usage = common_pb2.Usage(input_tokens=found.num_input_tokens, cached_tokens=found.num_cached_tokens)
        answer = classification_pb2.ClassifyResponse(labels=labels, **about(call, model, *sequences, usage=usage))
        answer.scoring = model.manifest.scoring
        with finishing(model, sequences, found.reason):
            if reading:
                await explain_rows(answer.alignment, model, reading, found.picture, [choice.best(found.probabilities)])
    return answer


class _Choice(NamedTuple):
    """Which of the labels are in an answer: at most `top_k`, and none whose score is below `threshold`."""

    labels: Many[str]
    top_k: int
    threshold: float

    def of(self, scores: np.ndarray) -> list[classification_pb2.LabelScore]:
        """Return those of scores [labels], highest score first. The lower index wins a tie."""
        order = (-scores).argsort(kind="stable")[: self.top_k]
        return [
            classification_pb2.LabelScore(label=self.labels[index], index=index, score=score)
            for index, score in zip(order.tolist(), scores[order].tolist(), strict=True)
            if not score < self.threshold
        ]

    def best(self, scores: np.ndarray) -> str:
        """Return the label of the highest score, be it in the answer or not."""
        return self.labels[int(scores.argmax())]


def choice_of(
    request: classification_pb2.ClassifyRequest,
    labels: Many[str],
    scoring: common_pb2.LabelScoring.ValueType = common_pb2.LABEL_SCORING_UNSPECIFIED,
) -> _Choice:
    """Return what a request asks for, with the defaults that its model has. Raises InvalidRequest."""
    by_default = len(labels) if scoring else min(DEFAULT_TOP_K, len(labels))
    top_k = request.top_k if request.HasField("top_k") else by_default
    if not 1 <= top_k <= len(labels):
        raise InvalidRequest("top_k", f"must be 1..{len(labels)}, not {top_k}")
    if not request.HasField("threshold"):
        are_several = scoring == common_pb2.LABEL_SCORING_SIGMOID and len(labels) > 1
        return _Choice(labels, top_k, DEFAULT_THRESHOLD if are_several else -math.inf)
    if scoring == common_pb2.LABEL_SCORING_IDENTITY:
        if not math.isfinite(request.threshold):
            raise InvalidRequest("threshold", f"must be a finite number, not {request.threshold:g}")
    elif not 0 <= request.threshold <= 1:  # said this way round, NaN is refused
        raise InvalidRequest("threshold", f"must be 0..1, not {request.threshold:g}")
    return _Choice(labels, top_k, request.threshold)
