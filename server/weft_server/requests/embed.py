"""Embeds the inputs of one request: all are admitted together or none is, and each has the bits that it has alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_server.errors import InvalidRequest
from weft_server.requests.generate import input_of
from weft_server.sequence import Sequence, Times

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from collections.abc import Sequence as Many

    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.source import Source

MAX_INPUTS = 256
_TINY = np.finfo(np.float32).tiny


async def embed(call: RequestContext, model: Model, inputs: Many[Any], prompt: str) -> list[Sequence]:
    """Return a sequence for each input, which has ended with its vector. The prompt stands before each text.

    Raises:
        RequestError: an input was refused, or there is no room for all, or the deadline passed.
    """
    most = min(MAX_INPUTS, model.engine.max_queued(call.standing))
    if len(inputs) > most:
        raise InvalidRequest("inputs", f"must be 1..{most}, not {len(inputs)}", "INPUT_TOO_LONG")

    async def read() -> list[Source]:
        return [await _read(call, model, each, index, prompt) for index, each in enumerate(inputs)]

    return await run_together(call, model, len(inputs), read)


async def run_together(
    call: RequestContext, model: Model, count: int, read: Callable[[], Awaitable[list[Source]]]
) -> list[Sequence]:
    """Reserve places for `count` inputs, read them, and return a sequence for each, which has ended with its values.

    If they turn out to be more, the others get places too, all or none.

    Raises:
        RequestError: an input was refused, or there is no room for all, or the deadline passed.
    """
    engine = model.engine
    # Before anything is read: who is refused for want of room costs nothing.
    engine.reserve(call.standing, count, deadline=call.deadline)
    try:
        started = time.monotonic()
        sources = await read()
        model.metrics.preprocess.observe(time.monotonic() - started)
        if (more := len(sources) - count) > 0:
            engine.reserve(call.standing, more, deadline=call.deadline)
            count = len(sources)
        sequences = [call.sequence(source) for source in sources]
        engine.submit(*sequences)
    except BaseException:
        engine.release(call.standing, count)
        raise
    try:
        for sequence in sequences:
            await sequence.reply.done()
    finally:
        for sequence in sequences:
            engine.cancel(sequence)
    return sequences


async def _read(call: RequestContext, model: Model, each: Any, index: int, prompt: str) -> Source:
    """Read one input: a worker's job for each, so that other requests get their turn between them."""
    try:
        read = input_of(model, each, each.WhichOneof("input"), model.languages.plain, prompt)
        return await model.work(read, call.deadline) if callable(read) else read
    except InvalidRequest as error:
        place = f"inputs[{index}].{error.field}"
        raise InvalidRequest(place, error.message.removeprefix(error.field).lstrip(), error.reason) from error


def vector_of(sequence: Sequence, dimensions: int, *, normalized: bool) -> np.ndarray:
    """Return the first `dimensions` numbers of a vector, float32, of length 1 again where the model is `normalized`."""
    values = sequence.reply.values
    if dimensions == len(values):
        return values
    cut = values[:dimensions]
    if not normalized:
        return cut
    # In float64: the sum of squares is exact enough to be rounded once.
    length = np.sqrt(np.square(cut, dtype=np.float64).sum())
    scaled: np.ndarray = (cut / max(length, _TINY)).astype(np.float32)
    return scaled


def times_of(sequences: Iterable[Sequence]) -> Times:
    """When the first of them passed the gates into a lane, and the last had its vector."""
    times = [sequence.times for sequence in sequences]
    return Times(
        accepted=times[0].accepted,
        admitted=min(each.admitted for each in times),
        first_token=max(each.first_token for each in times),
    )
