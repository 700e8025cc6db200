"""Answers a text sentence by sentence, or a recording window by window. The answers become one.

All parts are admitted together or not at all.
"""

from __future__ import annotations

import time
import unicodedata
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest
from weft_server.requests.decoding_config import resolve_decoding
from weft_server.requests.generate import Completed, answer_in_pieces, wants_tokens, whole_answer
from weft_server.requests.phrase_reader import takes_long
from weft_server.sequence import FinishReason, Sequence

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from weft_server.logits_processors.base import Rule
    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.inputs import InputPart
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.requests.transcription import LanguageDetection
    from weft_server.sequence import Decoding


class Cut(NamedTuple):
    """What is cut, and into what. Errors say so."""

    field: str
    parts: str
    # What is refused, and what to do instead.
    alone: str
    # What tells the language of the first part before all are answered.
    telling: LanguageDetection | None = None
    # What all answers keep to, besides what the request asks for.
    rule: Rule | None = None


SENTENCES = Cut("text", "sentences", "with split_sentences: send each sentence by itself")
WINDOWS = Cut("audio", "windows", "for a recording")
# The reason of an answer is the last of these that one of its parts has.
_FROM_BEST = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.STOP_STRING)


async def complete_parts(
    call: RequestContext,
    model: Model,
    cut: Cut,
    read: Callable[[Wanted], list[InputPart]],
    requested: common_pb2.Decoding,
    *,
    prefix_ids: tuple[int, ...] = (),
    streams: bool = False,
    scores: bool = False,
) -> AsyncGenerator[str | Completed]:
    """Do as `complete` does, for what is read in parts. They run together, and are answered in their order.

    A stop string in one of them ends the answer.

    Raises:
        RequestError: the request was refused, or its deadline passed.
    """
    parts, sequences, probability = await _submit(
        call, model, cut, read, requested, prefix_ids=prefix_ids, streams=streams, scores=scores
    )
    text = ""
    answers: list[Completed] = []
    try:
        for part, sequence in zip(parts, sequences, strict=True):
            so_far = text
            async with aclosing(_answer(model, sequence, streams=streams)) as events:
                async for event in events:
                    if isinstance(event, Completed):
                        answers.append(event)
                        continue
                    delta = event if len(text) > len(so_far) else joint(so_far, part.gap, event) + event
                    text += delta
                    yield delta
            if len(text) == len(so_far):
                # It does not stream, or its answer is empty, or it comes as a whole: that of a beam search.
                delta = joint(so_far, part.gap, answers[-1].text) + answers[-1].text
                text += delta
                if streams and delta:
                    yield delta
            if answers[-1].finish_reason is FinishReason.STOP_STRING:
                break
        # Parts behind a stop string are wanted no more, but nobody has gone. A unary call closes this generator
        # at the answer, so it is said before.
        _cancel(model, sequences, FinishReason.STOP_STRING)
        # Of several parts, each is a search of its own.
        score = answers[0].score if len(parts) == 1 else None
        yield replace(_joined(text, answers), language_probability=probability, score=score)
    except BaseException:
        _cancel(model, sequences, None)
        raise


def joint(before: str, gap: str, after: str) -> str:
    """Return what stands between two answers: what stood between the parts.

    Chinese and Japanese put nothing there. Then it is a space, unless one of the answers is in such a script too.
    """
    if gap or not before or not after or before[-1].isspace() or after[0].isspace():
        return gap
    wide = any(unicodedata.east_asian_width(each) in "WF" for each in (before[-1], after[0]))
    return "" if wide else " "


async def _submit(
    call: RequestContext,
    model: Model,
    cut: Cut,
    read: Callable[[Wanted], list[InputPart]],
    requested: common_pb2.Decoding,
    *,
    prefix_ids: tuple[int, ...],
    streams: bool,
    scores: bool,
) -> tuple[list[InputPart], list[Sequence], float | None]:
    """Reserve a place, cut the input in a worker thread, reserve the others, and submit all parts at once.

    Also returns how probable the language is that was told, if one was.
    """
    engine = model.engine
    engine.reserve(call.standing, deadline=call.deadline)
    num_reserved = 1
    probability = None
    try:
        started = time.monotonic()
        requested = _single(requested, cut)
        parts = await model.work(read, call.deadline)
        model.metrics.preprocess.observe(time.monotonic() - started)

        def resolve(_: Wanted | None = None) -> Decoding:
            return resolve_decoding(requested, model.manifest, model.widths, 0, model.target_tokenizer, rule=cut.rule)

        # A seed that is drawn is drawn once, so all parts have the same.
        decoding = await model.work(resolve, call.deadline) if takes_long(requested) else resolve()
        check_room(cut, len(parts), engine.max_queued(call.standing))
        if cut.telling:
            asking = cut.telling.ask(call, parts[0].source)
            engine.submit(asking)
            num_reserved = 0
            prefix_ids, probability = cut.telling.told(await _answered(model, asking))
            engine.reserve(call.standing, deadline=call.deadline)
            num_reserved = 1
        engine.reserve(call.standing, len(parts) - 1)
        num_reserved = len(parts)
        sequences = [
            call.sequence(
                part.source,
                decoding,
                prefix_ids=prefix_ids,
                wants_tokens=wants_tokens(decoding, streams=streams),
                wants_scores=scores,
                num_top_tokens=call.num_top_tokens,
                cache_salt=call.cache_key,
            )
            for part in parts
        ]
        engine.submit(*sequences)
    except BaseException:
        engine.release(call.standing, num_reserved)
        raise
    return parts, sequences, probability


async def _answered(model: Model, sequence: Sequence) -> Sequence:
    """Wait for a sequence that was submitted."""
    try:
        await sequence.reply.done()
    finally:
        model.engine.cancel(sequence)
    return sequence


def _single(requested: common_pb2.Decoding, cut: Cut) -> common_pb2.Decoding:
    """Return a Decoding that holds for each part. A model's own number of answers gives way to one.

    Its own prefix stays: each of its answers begins so.

    Raises:
        InvalidRequest: it asks for what cannot hold for each.
    """
    if requested.HasField("constraint"):
        raise InvalidRequest("decoding.constraint", f"is not followed {cut.alone}")
    if requested.HasField("prefix"):
        raise InvalidRequest("decoding.prefix", f"is not taken {cut.alone}")
    if requested.num_outputs > 1:
        raise InvalidRequest("decoding.num_outputs", f"must be 1, not {requested.num_outputs}, {cut.alone}")
    single = common_pb2.Decoding(num_outputs=1)
    single.MergeFrom(requested)
    return single


def check_room(cut: Cut, num_parts: int, max_queued: int) -> None:
    """Raise InvalidRequest for an input of more parts than may wait."""
    if num_parts > max_queued:
        why = f"has {num_parts} {cut.parts}, and this server lets {max_queued} wait: send it in several requests"
        raise InvalidRequest(cut.field, why, "INPUT_TOO_LONG")


async def _answer(model: Model, sequence: Sequence, *, streams: bool) -> AsyncGenerator[str | Completed]:
    if not sequence.wants_tokens:
        yield whole_answer(model, sequence, await sequence.reply.done())
        return
    async with aclosing(answer_in_pieces(model, sequence, streams=streams)) as events:
        async for event in events:
            yield event


def _cancel(model: Model, sequences: list[Sequence], outcome: FinishReason | None) -> None:
    for sequence in sequences:
        model.engine.cancel(sequence, outcome)


def _joined(text: str, answers: list[Completed]) -> Completed:
    """One answer of those of all parts that have one."""
    return Completed(
        text=text,
        token_ids=[token_id for answer in answers for token_id in answer.token_ids],
        log_probs=[log_prob for answer in answers for log_prob in answer.log_probs],
        finish_reason=max((answer.finish_reason for answer in answers), key=_FROM_BEST.index),
        sequences=tuple(answer.sequence for answer in answers),
        tops=[top for answer in answers for top in answer.tops],
        parts=tuple(answers),
    )
