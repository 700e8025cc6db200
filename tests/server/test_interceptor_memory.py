"""What a call held is let go when it ends, by counting references: the garbage collector comes late, or not at all."""

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from structlog.testing import capture_logs

from intercepted import interceptor_of
from weft_server.errors import Draining, InvalidRequest
from weft_server.sequence import Reply


class _Request:
    """A large request, of which a test can ask whether it is still there."""

    def __init__(self, data):
        self.data = data


def _refuse(request):
    raise InvalidRequest("data", "is too long", "INPUT_TOO_LONG")


def _refuse_for_a_cause(request):
    picture = request.data.hex()
    try:
        int(picture[:10], 2)
    except ValueError as error:
        raise InvalidRequest("data", "is no picture", "BAD_IMAGE") from error


def _fail(request):
    raise KeyError("a bug")


async def _in_a_worker(request):
    await asyncio.get_running_loop().run_in_executor(None, _refuse_for_a_cause, request)


async def _by_the_engine(request):
    """As a lane ends a sequence, whose reply keeps the error."""
    reply = Reply()
    reply.put([], [], InvalidRequest("data", "the engine's word"))
    await reply.done()


async def _wait(request):
    await asyncio.Event().wait()


ENDS = [_refuse, _refuse_for_a_cause, _fail, _in_a_worker, _by_the_engine]


@asynccontextmanager
async def _served(end, requests):
    """An intercepted server whose calls end by `end`; each request that it reads is remembered weakly in `requests`."""

    def read(data):
        request = _Request(data)
        requests.append(weakref.ref(request))
        return request

    async def answer(request, context):
        if asyncio.iscoroutine(ending := end(request)):
            await ending

    async def stream(request, context):
        yield b"first"
        await answer(request, context)

    interceptor = interceptor_of()
    handlers = {
        "Answer": grpc.unary_unary_rpc_method_handler(answer, read),
        "Stream": grpc.unary_stream_rpc_method_handler(stream, read),
    }
    server = grpc.aio.server(interceptors=[interceptor])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("weft.v1.Test", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield interceptor, channel
    finally:
        await server.stop(None)


async def _unary(channel, **options):
    await channel.unary_unary("/weft.v1.Test/Answer")(b"\xff" * (1 << 16), **options)


async def _streaming(channel, **options):
    async for _ in channel.unary_stream("/weft.v1.Test/Stream")(b"\xff" * (1 << 16), **options):
        pass


async def _left(requests, interceptor):
    """How many requests are still there once all calls have ended and gRPC has had its turns."""
    await asyncio.wait_for(interceptor.gate.idle(), 10)
    for _ in range(100):
        if not any(request() for request in requests):
            break
        await asyncio.sleep(0.01)
    return sum(request() is not None for request in requests)


def _held_after(end, ask):
    """(how many requests were read, how many are still there), with the garbage collector off."""

    async def run():
        requests = []
        async with _served(end, requests) as (interceptor, channel):
            gc.collect()
            gc.disable()
            try:
                for _ in range(3):
                    await ask(interceptor, channel)
                return len(requests), await _left(requests, interceptor)
            finally:
                gc.enable()

    with capture_logs():
        return asyncio.run(run())


@pytest.mark.parametrize("call", [_unary, _streaming])
@pytest.mark.parametrize("end", ENDS)
def test_a_refused_request_is_let_go(end, call):
    """Whatever a call ends with, nothing of its request stays."""

    async def ask(interceptor, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await call(channel)

    assert (3, 0) == _held_after(end, ask)


@pytest.mark.parametrize("call", [_unary, _streaming])
def test_what_is_refused_at_the_door_is_not_read(call):
    """A server that drains parses nothing of what it refuses."""

    async def ask(interceptor, channel):
        interceptor.gate.draining = True
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(channel)
        assert grpc.StatusCode.UNAVAILABLE is refused.value.code()
        assert Draining().message == refused.value.details()

    assert (0, 0) == _held_after(_wait, ask)


@pytest.mark.parametrize("call", [_unary, _streaming])
def test_a_late_call_is_let_go(call):
    """A deadline that passes leaves nothing."""

    async def ask(interceptor, channel):
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await call(channel, timeout=0.3)
        assert grpc.StatusCode.DEADLINE_EXCEEDED is late.value.code()

    num_read, num_left = _held_after(_wait, ask)
    assert num_read > 0  # of the three; a machine that stands still reads one too late
    assert 0 == num_left


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
def test_a_call_whose_caller_goes_is_let_go(kind):
    """Cancelled calls leave nothing."""
    begun = asyncio.Event()

    async def wait(request):
        begun.set()
        await _wait(request)

    async def ask(interceptor, channel):
        begun.clear()
        method = "Answer" if kind == "unary_unary" else "Stream"
        call = getattr(channel, kind)(f"/weft.v1.Test/{method}")(bytes(1 << 16))
        await begun.wait()
        call.cancel()

    assert (3, 0) == _held_after(wait, ask)
