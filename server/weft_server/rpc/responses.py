"""The messages that answers share: Completion, Timings, ResolvedModel."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from weft_proto.v1 import common_pb2
from weft_server.requests.decoding_config import EARLY_STOPPING
from weft_server.requests.embed import times_of
from weft_server.sequence import FinishReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from google.protobuf import duration_pb2

    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.tokenizer import Tokenizer
    from weft_server.requests.generate import Completed, OtherAnswer
    from weft_server.sequence import Decoding, Sequence, Times

# Of so many steps the most probable tokens are written on the event loop. Each takes 5 to 10 us.
FEW_STEPS = 128
_REASONS = {
    FinishReason.STOP: common_pb2.FINISH_REASON_STOP,
    FinishReason.STOP_STRING: common_pb2.FINISH_REASON_STOP_STRING,
    FinishReason.LENGTH: common_pb2.FINISH_REASON_LENGTH,
}


async def write_completion(message: common_pb2.Completion, call: RequestContext, model: Model, done: Completed) -> None:
    """Fill in the finished answer."""
    tokenizer = model.target_tokenizer
    message.CopyFrom(_completion_proto(call, model, done))
    num_steps = len(done.tops) + sum(len(other.output.tops) for other in done.others)

    def write() -> None:
        add_tops(message.top_tokens, tokenizer, done.tops)
        for other in done.others:
            _add_output(message.others, tokenizer, other, scored=done.sequence.wants_scores)

    await written(call, model, num_steps, write)


async def written(call: RequestContext, model: Model, num_steps: int, write: Callable[[], None]) -> None:
    """Call what writes the most probable tokens of so many steps into a message. Of many, that is in a worker thread.

    Otherwise all streams and deadlines would wait for a quarter of a second, for the longest answers. What is left to
    the event loop, to make bytes of the message, takes a seventh of it.

    Raises DeadlineExpired if the deadline has passed when a worker comes to it.
    """
    if num_steps > FEW_STEPS:
        await model.work(lambda _: write(), call.deadline)
    else:
        write()


def add_tops(messages: Any, tokenizer: Tokenizer, tops: Iterable[tuple[list[int], list[float]]]) -> None:
    """Add the most probable tokens of each step to a message's. In place: a copy would cost as much again."""
    for token_ids, log_probs in tops:
        messages.add(token_ids=token_ids, log_probs=log_probs, tokens=tokenizer.pieces(token_ids))


def _completion_proto(call: RequestContext, model: Model, done: Completed) -> common_pb2.Completion:
    """The finished answer as a message, without the most probable tokens and other answers."""
    scored = done.sequence.wants_scores
    return common_pb2.Completion(
        text=done.text,
        token_ids=done.token_ids,
        token_log_probs=done.log_probs if scored else (),
        tokens=model.target_tokenizer.pieces(done.token_ids) if scored else (),
        finish_reason=_REASONS[done.finish_reason],
        decoding=_decoding_proto(done.sequence.text_decoding),
        usage=common_pb2.Usage(
            input_tokens=done.num_input_tokens,
            output_tokens=done.num_output_tokens,
            cached_tokens=done.num_cached_tokens,
        ),
        timings=timings_proto(done.times),
        model=resolved_proto(model.name, model.version, call.adapter_name),
        request_id=call.request_id,
        score=done.score,
    )


def _add_output(messages: Any, tokenizer: Tokenizer, other: OtherAnswer, *, scored: bool) -> None:
    """Add one more answer to a message's."""
    output = other.output
    message = messages.add(
        text=other.text,
        token_ids=output.token_ids,
        token_log_probs=output.log_probs if scored else (),
        tokens=tokenizer.pieces(output.token_ids) if scored else (),
        finish_reason=_REASONS[output.reason],
        score=output.score,
    )
    add_tops(message.top_tokens, tokenizer, output.tops)


def timings_proto(times: Times, *, writes: bool = True) -> common_pb2.Timings:
    """Where the time went. An answer that a stop string cut ends now: the engine may not have noticed yet.

    One that `writes` no text has ended with its first and only run.
    """
    finished = (times.finished or time.monotonic()) if writes else times.first_token
    timings = common_pb2.Timings()
    _set(timings.queue, times.admitted - times.accepted)
    _set(timings.prefill, times.first_token - times.admitted)
    _set(timings.decode, max(0.0, finished - times.first_token))
    return timings


def about(
    call: RequestContext, model: Model, *sequences: Sequence, usage: common_pb2.Usage | None = None
) -> dict[str, Any]:
    """What each answer that came with one run, or with some together, says of itself: all but what was found.

    `usage` is by default the tokens of all inputs.
    """
    times = sequences[0].times if len(sequences) == 1 else times_of(sequences)
    return {
        "usage": usage or common_pb2.Usage(input_tokens=sum(sequence.num_input_tokens for sequence in sequences)),
        "timings": timings_proto(times, writes=False),
        "model": resolved_proto(model.name, model.version, call.adapter_name),
        "request_id": call.request_id,
    }


@lru_cache(64)
def resolved_proto(name: str, version: int, adapter: str = "") -> common_pb2.ResolvedModel:
    """The model that answered, and by which adapter. It is the same message each time, and must not be changed."""
    return common_pb2.ResolvedModel(name=name, version=version, adapter=adapter)


def _decoding_proto(decoding: Decoding) -> common_pb2.Decoding:
    """How the answer was produced, every default filled in."""
    proto = common_pb2.Decoding(
        max_new_tokens=decoding.max_new_tokens,
        min_new_tokens=decoding.min_new_tokens,
        stop=decoding.stop,
        num_outputs=decoding.num_outputs,
    )
    if decoding.beams:
        proto.beams.num_beams = decoding.beams.num_beams
        proto.beams.length_penalty = decoding.beams.length_penalty
        proto.beams.early_stopping = EARLY_STOPPING[decoding.beams.early_stopping]
    elif decoding.alternatives:
        proto.alternatives.SetInParent()
    elif decoding.sampling is None:
        proto.greedy.SetInParent()
    else:
        proto.sampling.MergeFrom(common_pb2.Sampling(**asdict(decoding.sampling)))
    if decoding.changes is not None:
        proto.MergeFrom(decoding.changes)
    return proto


def _set(duration: duration_pb2.Duration, seconds: float) -> None:
    # The library's own FromNanoseconds takes five times as long, and it would be called three times an answer.
    # A duration that is made and copied into its message takes twice as long.
    duration.seconds, duration.nanos = divmod(int(seconds * 1e9), 1_000_000_000)


def packed(field: int, values: np.ndarray) -> bytes:
    """A repeated float field as bytes. Adding a million floats one by one would hold the interpreter for 0.1 s."""
    size, length = values.size * 4, bytearray()
    while size >= 1 << 7:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([field << 3 | 2, *length, size]) + values.astype("<f4").tobytes()
