"""Answers a request with a model: reads the input, submits a sequence, makes text of tokens, leaves nothing behind."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from weft_proto.tasks import TASKS
from weft_server.preprocessing.pictured_prompt import PicturedPrompt
from weft_server.preprocessing.text_stream import TextStream
from weft_server.requests.decoding_config import resolve_decoding
from weft_server.requests.phrase_reader import takes_long
from weft_server.requests.sight import see, unpictured
from weft_server.sequence import Decoding, FinishReason, Output, Sequence, Times

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator

    import numpy as np

    from weft_proto.languages import Frame
    from weft_proto.v1 import common_pb2
    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.prompts import Prompt
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.sampling.candidates import TopLogprobs
    from weft_server.source import Source

    # An input, or a function that reads it, in a worker thread unless it is a ShortText.
    Read = Source | Callable[[Wanted], Source]

# A text of so many bytes of UTF-8 takes 0.1 ms as a rule, and 0.5 ms at most (measured: words, spaces, one long word,
# ideograms, emoji, ligatures; pieces of words and of bytes). A worker takes 0.2 ms of two threads' time beside that.
# Of characters it would be 2 ms: a normalizer makes 18 of one that has three bytes.
SHORT_BYTES = 512


@dataclass(frozen=True, slots=True)
class ShortText:
    """Reads a text that has at most SHORT_BYTES with its prompt: a worker's part would be more than the reading."""

    read: Callable[[], Source]

    def __call__(self, wanted: Wanted) -> Source:  # noqa: ARG002 - it is soon read
        """Read it."""
        return self.read()


class OtherAnswer(NamedTuple):
    """One more answer to the same request, and its text."""

    text: str
    output: Output


@dataclass(frozen=True, slots=True)
class Completed:
    """A finished answer."""

    text: str
    token_ids: list[int]
    log_probs: list[float]
    finish_reason: FinishReason
    # One, or those of the parts that an input was cut into.
    sequences: tuple[Sequence, ...]
    # The most probable tokens of each step, if they were asked for.
    tops: list[TopLogprobs] = field(default_factory=list)
    # Of a beam search.
    score: float | None = None
    # The other answers that were asked for, best first.
    others: tuple[OtherAnswer, ...] = ()
    # Those of the parts that the input was cut into, if it was.
    parts: tuple[Completed, ...] = ()
    # How probable the language of a recording is, if the model told it.
    language_probability: float | None = None

    @property
    def sequence(self) -> Sequence:
        """The only one, or that of the first sentence."""
        return self.sequences[0]

    @property
    def num_output_tokens(self) -> int:
        """Tokens of all answers."""
        return len(self.token_ids) + sum(len(other.output.token_ids) for other in self.others)

    @property
    def num_input_tokens(self) -> int:
        """Tokens or patches of the input."""
        return sum(sequence.num_input_tokens for sequence in self.sequences)

    @property
    def num_cached_tokens(self) -> int:
        """Of these, those that the prefix cache held."""
        return sum(sequence.num_cached_tokens for sequence in self.sequences)

    @property
    def times(self) -> Times:
        """When it passed each gate: the first sentence that was admitted, the first token, the last end."""
        if len(self.sequences) == 1:
            return self.sequence.times
        times = [sequence.times for sequence in self.sequences]
        return Times(
            accepted=times[0].accepted,
            admitted=min(each.admitted for each in times),
            first_token=min(each.first_token for each in times),
            finished=max(each.finished or time.monotonic() for each in times),
        )


def input_of(model: Model, request: Any, kind: str, frame: Frame, prompt: Prompt | None = None) -> Read:
    """Return the input of a request, or a function that reads it. `kind` is its field.

    Only a text gets the ids around it that `frame` has, and a prompt before it, by default the model's own. Who sends
    ids has put them there.
    """
    if kind == "image":
        return lambda wanted: model.reader.read_image(request.image, wanted)
    if kind == "audio":
        return lambda wanted: model.reader.read_window(request.audio, "audio", wanted)
    if kind == "text":

        def read() -> Source:
            return unpictured(model, model.reader.read_text(request.text, "text", frame, prompt), "text")

        prompted = (prompt or model.reader.prompts.default).text + request.text
        is_short = len(prompted) <= SHORT_BYTES and len(prompted.encode()) <= SHORT_BYTES
        return ShortText(read) if is_short else lambda _: read()
    if kind == "messages":
        return lambda wanted: model.reader.read_messages(request.messages, "messages", wanted)
    # Checking ids takes less time than handing them to a worker.
    return unpictured(model, model.reader.read_ids(request.token_ids, "token_ids"), "token_ids.ids")


async def source_of(call: RequestContext, model: Model, read: Read) -> Source:
    """Read an input, in a worker thread unless that would take longer than to read it here."""
    if isinstance(read, ShortText):
        return read.read()
    return await model.work(read, call.deadline) if callable(read) else read


def wants_tokens(decoding: Decoding | None, *, streams: bool) -> bool:
    """Whether a sequence is given each token as it comes. One that is not plain has no tokens before its end."""
    return decoding is not None and decoding.is_plain and (streams or bool(decoding.stop))


async def submit(
    call: RequestContext,
    model: Model,
    read: Read,
    resolve: Callable[..., Decoding | None],
    *,
    work: Callable[..., Awaitable[Decoding | None]] | None = None,
    prefix_ids: tuple[int, ...] = (),
    streams: bool = False,
    scores: bool = False,
) -> Sequence:
    """Reserve a place, read the input, submit. The caller cancels the sequence on its way out.

    What takes long to resolve is resolved in a worker thread too, by `work`: then `resolve` is told who waits.

    This is no context manager, because a generator's costs each call 5 us.
    """
    engine = model.engine
    engine.reserve(call.standing, deadline=call.deadline)
    try:
        started = time.monotonic()
        source = await source_of(call, model, read)
        model.metrics.preprocess.observe(time.monotonic() - started)
        decoding = await work(lambda wanted: resolve(source, wanted), call.deadline) if work else resolve(source)
        if isinstance(source, PicturedPrompt):
            source = await see(call, model, source)
        sequence = call.sequence(
            source,
            decoding,
            prefix_ids=(*prefix_ids, *source.asked_ids),
            wants_tokens=wants_tokens(decoding, streams=streams),
            wants_scores=scores,
            num_top_tokens=call.num_top_tokens,
            cache_salt=call.cache_key,
        )
        engine.submit(sequence)
    except BaseException:
        engine.release(call.standing)
        raise
    return sequence


async def classify(
    call: RequestContext, model: Model, read: Read, admit: Callable[[Source], None] = lambda _: None
) -> tuple[Sequence, FinishReason, np.ndarray]:
    """Return a sequence that has ended, the reason, and its values: [labels], [tokens, labels] or [dimensions].

    `admit` may refuse an input that was read, before it waits for the model.

    Raises:
        RequestError: the request was refused, or its deadline passed.
    """
    sequence = await submit(call, model, read, admit)
    try:
        reason = await sequence.reply.done()
    finally:
        model.engine.cancel(sequence)
    return sequence, reason, sequence.reply.values


async def complete(
    call: RequestContext,
    model: Model,
    read: Read,
    requested: common_pb2.Decoding,
    *,
    prefix_ids: tuple[int, ...] = (),
    streams: bool = False,
    scores: bool = False,
) -> AsyncGenerator[str | Completed]:
    """Yield text as it comes (only if it `streams`), then the Completed answer, with log-probabilities if `scores`.

    The decoder is fed `prefix_ids` behind its start token.

    Raises:
        RequestError: the request was refused, or its deadline passed.
    """
    takes_prompt = TASKS[model.manifest.task].takes_prompt

    def resolve(source: Source, wanted: Wanted | None = None) -> Decoding:
        num_prompt_tokens = source.num_tokens if takes_prompt else 0
        constrain = partial(model.constrain, standing=call.standing, wanted=wanted)
        return resolve_decoding(
            requested, model.manifest, model.widths, num_prompt_tokens, model.target_tokenizer, constrain
        )

    work: Callable[..., Awaitable[Decoding]] | None = model.work if takes_long(requested) else None
    if requested.HasField("constraint"):
        work = partial(model.building.do, standing=call.standing)
    sequence = await submit(
        call, model, read, resolve, work=work, prefix_ids=prefix_ids, streams=streams, scores=scores
    )
    try:
        if sequence.wants_tokens:
            async with aclosing(answer_in_pieces(model, sequence, streams=streams)) as events:
                async for event in events:
                    yield event
        else:
            yield whole_answer(model, sequence, await sequence.reply.done())
    finally:
        model.engine.cancel(sequence)


async def answer_in_pieces(model: Model, sequence: Sequence, *, streams: bool) -> AsyncGenerator[str | Completed]:
    """Yield a sequence's text as it comes (only if it `streams`), then its answer, cut by a stop string if one came."""
    text = TextStream(model.target_tokenizer, sequence.text_decoding.stop)
    reply = sequence.reply
    seen = 0
    while True:
        # This is read before the tokens. So all tokens that came before the end are taken below, even during a slow
        # write.
        ended = reply.outcome is not None
        # Everything that has come since the last message goes into one.
        fresh = reply.token_ids[seen:]
        seen += len(fresh)
        if (delta := text.push(fresh)) and streams:
            yield delta
        if ended or text.stopped:
            break
        if seen == len(reply.token_ids) and reply.outcome is None:
            await reply.changed()

    reason = FinishReason.STOP_STRING
    if not text.stopped:
        reason = await reply.done()
        if (rest := text.finish()) and streams:
            yield rest
    if text.stopped:
        model.engine.cancel(sequence, FinishReason.STOP_STRING)
        reason = FinishReason.STOP_STRING
    yield _cut(text, sequence, reason)


def whole_answer(model: Model, sequence: Sequence, reason: FinishReason) -> Completed:
    """The answer of a caller who waited for the whole of it."""
    reply = sequence.reply
    if reply.outputs:
        return _several(model, sequence, reply.outputs)
    text = model.target_tokenizer.decode(reply.token_ids)
    return Completed(text, reply.token_ids, reply.log_probs, reason, (sequence,), reply.tops)


def _several(model: Model, sequence: Sequence, outputs: list[Output]) -> Completed:
    """The answers of a sequence that is not plain, each cut at its first stop string."""
    (text, best), *others = (_read(model, output, sequence.text_decoding.stop) for output in outputs)
    return Completed(
        text, best.token_ids, best.log_probs, best.reason, (sequence,), best.tops, best.score, tuple(others)
    )


def _read(model: Model, output: Output, stop: tuple[str, ...]) -> OtherAnswer:
    if not stop:
        return OtherAnswer(model.target_tokenizer.decode(output.token_ids), output)
    text = TextStream(model.target_tokenizer, stop)
    text.push(output.token_ids)
    if not text.stopped:
        text.finish()
    if text.stopped:
        used = text.tokens_used
        output = replace(
            output,
            token_ids=output.token_ids[:used],
            log_probs=output.log_probs[:used],
            tops=output.tops[:used],
            reason=FinishReason.STOP_STRING,
        )
    return OtherAnswer(text.text, output)


def _cut(text: TextStream, sequence: Sequence, reason: FinishReason) -> Completed:
    """The answer up to and including the token that completed a stop string, if one did."""
    reply = sequence.reply
    used = text.tokens_used if text.stopped else len(reply.token_ids)
    log_probs, tops = reply.log_probs[:used], reply.tops[:used]
    return Completed(text.text, reply.token_ids[:used], log_probs, reason, (sequence,), tops)


@contextmanager
def finishing(model: Model, sequences: Iterable[Sequence], reason: FinishReason) -> Iterator[None]:
    """Count an answer that the engine has ended.

    There are two cases:

    1. All that is left to do for it succeeds: it is finished.
    2. Something fails before: nobody got it, and its tokens are wasted.
    """
    try:
        yield
    except BaseException as error:
        model.metrics.wasted_tokens.inc(sum(sequence.num_output_tokens for sequence in sequences))
        if isinstance(error, asyncio.CancelledError):
            model.metrics.cancelled("explain")
        raise
    model.metrics.finished(reason.value)
