"""Embeds the inputs of one request: all are admitted together or none is, and each has the bits that it has alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from weft_server.errors import InvalidRequest
from weft_server.requests.generate import input_of, source_of
from weft_server.requests.token_vectors import check_room, cut
from weft_server.sequence import Sequence, Times
from weft_server.source import FilledIds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from collections.abc import Sequence as Many

    import numpy as np

    from weft_proto.v1 import bundle_pb2
    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.prompts import Prompt
    from weft_server.source import Source

MAX_INPUTS = 256


async def embed(
    call: RequestContext, model: Model, inputs: Many[Any], prompt: Prompt, *, only_whole: bool = False
) -> list[Sequence]:
    """Return a sequence for each input, which has ended with its vector. The prompt stands before each text.

    Of a model that gives a row for each token it has ended with all rows, or, `only_whole`, with the first.

    Raises:
        RequestError: an input was refused, or there is no room for all, or the deadline passed.
    """
    most = min(MAX_INPUTS, model.engine.max_queued(call.standing))
    if len(inputs) > most:
        raise InvalidRequest("inputs", f"must be 1..{most}, not {len(inputs)}", "INPUT_TOO_LONG")

    spec = model.manifest.embedding

    async def read() -> list[Source]:
        sources = [await _read(call, model, inputs, index, prompt) for index in range(len(inputs))]
        if spec.HasField("tokens"):
            if only_whole:
                return [FilledIds(source.array, len(source.array), 1) for source in sources]  # none is filled up
            check_room(sources, spec)
        return sources

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


async def _read(call: RequestContext, model: Model, inputs: Many[Any], index: int, prompt: Prompt) -> Source:
    """Read one input: of several, a worker's job for each, so that other requests get their turn between them."""
    each = inputs[index]
    try:
        read = input_of(model, each, each.WhichOneof("input"), model.languages.plain, prompt)
        if len(inputs) > 1 and callable(read):
            return await model.work(read, call.deadline)
        return await source_of(call, model, read)
    except InvalidRequest as error:
        place = f"inputs[{index}].{error.field}"
        raise InvalidRequest(place, error.message.removeprefix(error.field).lstrip(), error.reason) from error


def vector_of(sequence: Sequence, spec: bundle_pb2.EmbeddingSpec, dimensions: int) -> np.ndarray:
    """Return the first `dimensions` numbers of the vector of a whole input, float32, of length 1 again if it was so."""
    values = sequence.reply.values
    # Where tokens have weights, the first row is that vector.
    whole = values[0, : spec.dimensions] if spec.HasField("tokens") else values
    return cut(whole, dimensions, normalized=spec.normalized)


def times_of(sequences: Iterable[Sequence]) -> Times:
    """When the first of them passed the gates into a lane, and the last had its vector."""
    times = [sequence.times for sequence in sequences]
    return Times(
        accepted=times[0].accepted,
        admitted=min(each.admitted for each in times),
        first_token=max(each.first_token for each in times),
    )
