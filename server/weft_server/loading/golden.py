"""Asks a freshly loaded model its golden request, on the same path as any caller's, and compares the answer."""

from __future__ import annotations

from contextlib import aclosing
from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from weft_proto.bundle_rules import EMBEDDING_TOLERANCE, GOLDEN_TOLERANCE, READS_ALL
from weft_proto.languages import Frame, LanguageError
from weft_proto.sight import sees
from weft_proto.sound import spoken_ids
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, classification_pb2, common_pb2
from weft_server.errors import BundleError
from weft_server.loading.explain_check import verify_explanation
from weft_server.models.request_context import RequestContext
from weft_server.preprocessing.masked_text import FillMaskInput, log_probs_of
from weft_server.requests.generate import Completed, classify, complete
from weft_server.requests.score import given_of, promised_scores, scorer_of
from weft_server.requests.sight import seen_again
from weft_server.requests.zero_shot import match, texts_of
from weft_server.runtime.device import HOST

if TYPE_CHECKING:
    from weft_server.models.model import Model
    from weft_server.requests.generate import Read
    from weft_server.sequence import Adapter, Sequence


# In nats, of a token, between the steps of a decoder and one pass. It is rounding alone: where a value lies between two
# levels of int8, it may fall to the other one.
_SCORE_TOLERANCE, _ROUNDED_SCORE_TOLERANCE = 5e-2, 1.0


async def verify_golden(model: Model) -> None:
    """Raise BundleError unless the model gives the golden answer, and explains it if it can."""
    golden = model.manifest.golden
    if golden.labels:
        sequence = await _verify_matched(model, golden)
        await verify_explanation(model, sequence.source, [], 1)
    elif TASKS[model.manifest.task].fills_masks:
        sequence = await _verify_fillings(model, golden)
        await verify_explanation(model, sequence.source, [], sequence.source.num_masks)
    elif TASKS[model.manifest.task].labels_frames:
        await _verify_moments(model, golden)
    elif golden.probabilities or golden.scores:
        sequence, num_rows = await _verify_probabilities(model, golden)
        await verify_explanation(model, sequence.source, [], num_rows)
    elif golden.embedding:
        sequence = await _verify_embedding(model, golden)
        await verify_explanation(model, sequence.source, [], 1)
    else:
        sequence = await _verify_tokens(_plain(model), golden)
        token_ids = list(golden.token_ids)
        if model.explainer:
            async with seen_again(_call(), model, model.explainer, sequence.source) as source:
                await verify_explanation(model, source, token_ids, len(token_ids), sequence.prefix_ids)


async def verify_adapter(model: Model, adapter: Adapter, golden: bundle_pb2.Golden) -> None:
    """Raise BundleError unless the model gives an adapter's golden answer with it."""
    if TASKS[model.manifest.task].fills_masks:
        await _verify_fillings(model, golden, adapter)
    elif golden.probabilities or golden.scores:
        await _verify_probabilities(model, golden, adapter)
    elif golden.embedding:
        await _verify_embedding(model, golden, adapter)
    else:
        await _verify_tokens(_plain(model), golden, adapter)


def _plain(model: Model) -> Model:
    """Return the model without settings of its own: the golden answer is what it writes when nothing changes scores."""
    plain = copy(model)
    plain.manifest = bundle_pb2.BundleManifest()
    plain.manifest.CopyFrom(model.manifest)
    plain.manifest.decoding.CopyFrom(common_pb2.Decoding(max_new_tokens=model.manifest.decoding.max_new_tokens))
    return plain


async def _verify_tokens(model: Model, golden: bundle_pb2.Golden, adapter: Adapter | None = None) -> Sequence:
    expected = list(golden.token_ids)
    decoding = common_pb2.Decoding(max_new_tokens=len(expected), min_new_tokens=0, greedy=common_pb2.Greedy())
    frame = _frame(model, golden)
    read = _reader(model, golden, frame)

    # What can leave out what only scores need is tried both ways: a graph with a condition, or two on a device.
    decoder = model.bundle.needed_graph(bundle_pb2.GRAPH_ROLE_DECODER)
    asks = any(port.name == READS_ALL for port in decoder.inputs) or model.devices != [HOST.name]
    for scores in (False, True) if asks or model.scorer else (False,):
        answers = complete(_call(adapter), model, read, decoding, prefix_ids=frame.prefix, scores=scores)
        async with aclosing(answers) as events:
            answer = await anext(events)
        assert isinstance(answer, Completed)
        if answer.token_ids != expected:
            which = "golden answer with scores" if scores else "golden answer"
            raise BundleError(f"the {which} differs: {answer.token_ids} instead of {expected}")
        sequence, log_probs = answer.sequence, answer.log_probs

    if model.scorer:
        await _verify_scores(model, sequence, expected, log_probs)
    return sequence


async def _verify_scores(model: Model, sequence: Sequence, token_ids: list[int], log_probs: list[float]) -> None:
    """Raise BundleError unless a given answer has the log-probabilities that it had when it was produced."""
    given = given_of(model.manifest, sequence.source, token_ids, sequence.prefix_ids)
    scores = await promised_scores(_call(sequence.adapter), scorer_of(model, "golden"), given)
    is_exact = model.manifest.precision == bundle_pb2.PRECISION_FP32
    tolerance = _SCORE_TOLERANCE if is_exact else _ROUNDED_SCORE_TOLERANCE
    if not np.abs(scores.log_probs - np.array(log_probs)).max() <= tolerance:
        actual = scores.log_probs.round(3).tolist()
        raise BundleError(f"the golden answer is scored {actual}, more than {tolerance:g} from {log_probs}")
    if not (np.diff(scores.top_log_probs) <= 0).all():
        raise BundleError("the most probable tokens of the golden answer are in no descending order")


async def _verify_probabilities(
    model: Model, golden: bundle_pb2.Golden, adapter: Adapter | None = None
) -> tuple[Sequence, int]:
    sequence, _, actual = await classify(_call(adapter), model, _reader(model, golden, model.languages.plain))
    # A tagger's are [tokens, labels].
    expected = np.array(golden.scores or golden.probabilities, np.float32).reshape(-1, len(model.manifest.labels))
    tolerance = GOLDEN_TOLERANCE[model.manifest.precision]
    rows = actual.reshape(-1, len(model.manifest.labels))
    # A comparison with NaN is false, so NaN fails too. Of what is no probability, it is a share of what is over 1.
    scale = np.maximum(np.abs(expected), 1)
    if rows.shape != expected.shape or not (np.abs(rows - expected) / scale).max() <= tolerance:
        raise BundleError(f"the golden answer differs by more than {tolerance:g}: {actual} instead of {expected}")
    return sequence, len(rows)


async def _verify_matched(model: Model, golden: bundle_pb2.Golden) -> Sequence:
    data = model.bundle.path(golden.image_path).read_bytes()
    texts = texts_of(model, classification_pb2.ClassifyRequest(labels=golden.labels))
    actual = await match(_call(), model, common_pb2.Image(data=data), texts)
    expected = np.array(golden.probabilities, np.float32)
    tolerance = GOLDEN_TOLERANCE[model.manifest.precision]
    if not np.abs(actual.probabilities - expected).max() <= tolerance:  # said this way round, NaN fails
        got = f"{actual.probabilities} instead of {expected}"
        raise BundleError(f"the golden answer differs by more than {tolerance:g}: {got}")
    return actual.picture


async def _verify_fillings(model: Model, golden: bundle_pb2.Golden, adapter: Adapter | None = None) -> Sequence:
    """Compare the log-probabilities of some tokens for each mask, which hang on those of all others."""
    source = FillMaskInput(
        model.reader, model.source_tokenizer, model.manifest.text.mask_id, golden.text, "golden.text"
    )
    sequence, _, logits = await classify(_call(adapter), model, lambda _: source.read())
    rows = len(logits)
    if len(golden.token_ids) % rows:
        raise BundleError(f"golden.token_ids are {len(golden.token_ids)}, which are no rows for {rows} masks")
    ids = np.array(golden.token_ids).reshape(rows, -1)
    actual = np.array([log_probs_of(row, some) for row, some in zip(logits, ids, strict=True)])
    expected = np.array(golden.scores, np.float32).reshape(rows, -1)
    tolerance = GOLDEN_TOLERANCE[model.manifest.precision]
    if not (np.abs(actual - expected) / np.maximum(np.abs(expected), 1)).max() <= tolerance:  # so NaN fails too
        raise BundleError(f"the golden answer differs by more than {tolerance:g}: {actual} instead of {expected}")
    return sequence


async def _verify_moments(model: Model, golden: bundle_pb2.Golden) -> None:
    """Compare the log-probability of the likeliest label of each moment."""
    _, _, actual = await classify(_call(), model, _reader(model, golden, model.languages.plain))
    expected, found = np.array(golden.scores, np.float32), actual[:, 1]
    tolerance = GOLDEN_TOLERANCE[model.manifest.precision]
    if found.shape != expected.shape or not np.abs(found - expected).max() <= tolerance:  # so NaN fails too
        raise BundleError(f"the golden answer differs by more than {tolerance:g}: {found} instead of {expected}")


async def _verify_embedding(model: Model, golden: bundle_pb2.Golden, adapter: Adapter | None = None) -> Sequence:
    sequence, _, actual = await classify(_call(adapter), model, _reader(model, golden, model.languages.plain))
    expected = np.array(golden.embedding, np.float32)
    # Of many vectors a manifest has those of the first tokens.
    actual = actual.reshape(-1)[: len(expected)]
    if len(actual) < len(expected):
        raise BundleError(f"the golden answer has {len(actual)} numbers instead of {len(expected)}")
    share = float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))
    tolerance = EMBEDDING_TOLERANCE[model.manifest.precision]
    if not share <= tolerance:  # said this way round, NaN fails
        raise BundleError(f"the golden answer differs by {share:.2g} of its length; at most {tolerance:g} may be")
    return sequence


def _call(adapter: Adapter | None = None) -> RequestContext:
    return RequestContext("golden", request_id="golden", adapter=adapter)


def _frame(model: Model, golden: bundle_pb2.Golden) -> Frame:
    task = TASKS[model.manifest.task]
    try:
        if task.takes_audio:
            return Frame(prefix=spoken_ids(model.manifest.audio, golden.source_language, to_english=False))
        if not task.takes_language:
            return model.languages.plain
        return model.languages.frame(golden.source_language, golden.target_language)
    except LanguageError as error:
        raise BundleError(f"golden.{error.field} {error}") from error


def _reader(model: Model, golden: bundle_pb2.Golden, frame: Frame) -> Read:
    if golden.WhichOneof("input") == "text":
        return lambda _: model.reader.read_text(golden.text, "golden.text", frame)
    if golden.WhichOneof("input") == "audio_path":
        data = model.bundle.path(golden.audio_path).read_bytes()
        return lambda wanted: model.reader.read_window(common_pb2.Audio(data=data), "golden.audio_path", wanted)
    image = common_pb2.Image(data=model.bundle.path(golden.image_path).read_bytes())
    if sees(model.manifest):
        return lambda wanted: model.reader.read_pictured(image, golden.question, "golden.question", wanted)
    if golden.question:
        return lambda wanted: model.reader.read_asked(image, golden.question, "golden.question", wanted)
    return lambda wanted: model.reader.read_image(image, wanted)
