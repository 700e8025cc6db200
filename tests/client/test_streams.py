"""Streams: text comes as it is produced, and a stream that is left frees the server at once."""

import asyncio
import contextlib
import gc
import threading

import pytest
from grpc import StatusCode

import weft
from fakes import Failure

WAIT_S = 5.0
LONG = " ".join(["word"] * 200)  # at 0.05 s a word far from its end when it is left


def leave_by_break(client):
    """Stop iterating, and hold no reference."""
    for _ in client.stream_generate(LONG):
        break


def leave_by_context(client):
    """Leave the block."""
    with client.stream_generate(LONG) as stream:
        next(stream)
    return stream


def leave_by_cancel(client):
    """Say so."""
    stream = client.stream_generate(LONG)
    next(stream)
    stream.cancel()
    with pytest.raises(weft.Cancelled):
        next(stream)


def leave_by_error(client):
    """Fail while reading."""
    with contextlib.suppress(ZeroDivisionError), client.stream_translate(LONG) as stream:
        for _ in stream:
            raise ZeroDivisionError
    return stream


def leave_by_closing(client):
    """Close the client."""
    stream = client.stream_generate(LONG)
    next(stream)
    client.close()
    with pytest.raises(weft.Cancelled):
        list(stream)


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_context, leave_by_cancel, leave_by_error, leave_by_closing])
def test_leaving_a_stream_cancels_the_call(client, server, leave):
    """However a stream is left before its end, the server sees the call cancelled."""
    server.servicer.step_s = 0.05
    held = leave(client)  # a stream that nobody holds is cancelled in any case

    assert server.servicer.seen[0].cancelled.wait(WAIT_S)
    del held


async def aleave_by_break(client):
    """Stop iterating, and hold no reference."""
    async for _ in client.stream_generate(LONG):
        break


async def aleave_by_context(client):
    """Leave the block."""
    async with client.stream_generate(LONG) as stream:
        await anext(stream)
    return stream


async def aleave_by_cancel(client):
    """Say so."""
    stream = client.stream_generate(LONG)
    await anext(stream)
    stream.cancel()
    with pytest.raises(weft.Cancelled):
        await anext(stream)


async def aleave_by_cancelling_the_task(client):
    """Cancel the reading task, which ends cancelled as asyncio wants it."""
    begun = asyncio.Event()

    async def read():
        async for _ in client.stream_generate(LONG):
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def aleave_by_timeout(client):
    """Let asyncio's own timeout end the reading."""
    stream = client.stream_generate(LONG)
    await anext(stream)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            async for _ in stream:
                pass


@pytest.mark.parametrize(
    "leave",
    [aleave_by_break, aleave_by_context, aleave_by_cancel, aleave_by_cancelling_the_task, aleave_by_timeout],
)
def test_leaving_an_asyncio_stream_cancels_the_call(server, leave):
    """However an asyncio stream is left, the server sees the call cancelled while the client lives on."""
    server.servicer.step_s = 0.05
    gc.disable()  # the law holds without the garbage collector's help

    async def run():
        async with weft.AsyncClient(server.target) as client:
            held = await leave(client)
            is_cancelled = await asyncio.to_thread(server.servicer.seen[0].cancelled.wait, WAIT_S)
            del held
            return is_cancelled

    try:
        assert asyncio.run(run())
    finally:
        gc.enable()


def test_text_comes_as_it_is_produced(client, server):
    """The first delta is there before the second one is made."""
    is_read, in_time = threading.Event(), []

    def pause():
        in_time.append(not in_time or is_read.wait(WAIT_S))

    server.servicer.pause = pause
    stream = client.stream_generate("a b c d e")
    assert "e" == next(stream)
    is_read.set()
    list(stream)

    assert [True] * 5 == in_time


def test_a_stream_read_to_its_end_is_not_cancelled(client, server):
    """Leaving the block after the last delta is no cancellation."""
    with client.stream_generate("a b") as stream:
        list(stream)

    assert not server.servicer.seen[0].cancelled.wait(0.2)


def test_there_is_no_result_before_the_end(client):
    """Asking for the result of a stream that is not read to its end is an error, not half an answer."""
    with client.stream_generate("a b") as stream:
        next(stream)
        with pytest.raises(weft.Error, match="not been read to its end"):
            _ = stream.result


def test_an_error_in_mid_stream_is_one_of_ours(client, server):
    """What came before the error was delivered; then it is raised as the table says."""
    server.servicer.script.append(Failure(StatusCode.INTERNAL, "BUG", "internal error 7", error_id="7", after=2))
    stream, deltas = client.stream_generate("a b c"), []
    with pytest.raises(weft.InternalError) as caught:
        deltas.extend(stream)

    assert "7" == caught.value.id
    server.servicer.script.append(Failure(StatusCode.INTERNAL, "BUG", "internal error 8", error_id="8", after=2))

    async def run():
        async with weft.AsyncClient(server.target) as aclient:
            return [delta async for delta in aclient.stream_generate("a b c")]

    with pytest.raises(weft.InternalError) as caught:
        asyncio.run(run())
    assert "8" == caught.value.id


def test_a_stream_without_its_final_message_is_a_bug(client, server):
    """A server that ends a stream without the final message is found out."""
    server.servicer.script.append(Failure(StatusCode.OK, after=1))
    with pytest.raises(weft.InternalError, match="This is a bug"):
        list(client.stream_generate("a b"))


def _cancelled_meanwhile(stream):
    """Let it be cancelled by somebody else just when its call is made again. Gives it back."""
    begin = stream._begin

    def begin_late(*args, **kwargs):
        stream.cancel()
        return begin(*args, **kwargs)

    stream._begin = begin_late
    return stream


BUSY_THEN_LONG = [Failure(StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", "full", retry_after=0.05), 3600.0]


def test_a_stream_that_is_cancelled_while_its_call_is_made_again_ends(server):
    """The new call is ended too: nobody else knows of it."""
    server.servicer.script.extend(BUSY_THEN_LONG)
    with weft.Client(server.target, wait=60.0, timeout=120.0) as client:
        stream = _cancelled_meanwhile(client.stream_generate("a b"))
        with pytest.raises(weft.Cancelled):
            next(stream)
        assert stream._call.cancelled()


def test_an_asyncio_stream_that_is_cancelled_while_its_call_is_made_again_ends(server):
    """The same, as another thread may cancel it."""
    server.servicer.script.extend(BUSY_THEN_LONG)

    async def run():
        async with weft.AsyncClient(server.target, wait=60.0, timeout=120.0) as client:
            stream = _cancelled_meanwhile(client.stream_generate("a b"))
            with pytest.raises(weft.Cancelled):
                await anext(stream)
            return stream._call.cancelled()

    assert asyncio.run(run())
