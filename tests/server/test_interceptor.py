"""The interceptor around calls of a real gRPC server."""

import asyncio
import gc
import time
import weakref
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from intercepted import interceptor_of
from raw_http2 import RawCaller
from waiting import until
from weft_proto.v1.tokenization_pb2 import TokenizeRequest
from weft_server.errors import MessageTooSlow, Overloaded
from weft_server.models.request_context import REQUEST_CONTEXT
from weft_server.telemetry.metrics import Metrics
from weft_server.telemetry.metrics_page import MetricsPage
from weft_server.transport import incoming
from weft_server.transport.handlers import abort
from weft_server.transport.status import to_status
from weft_server.transport.traffic import Traffic


class _Arrivals(grpc.aio.ServerInterceptor):
    """Says when a call has reached the server."""

    def __init__(self):
        self.came = asyncio.Event()

    async def intercept_service(self, continuation, handler_call_details):
        handler = await continuation(handler_call_details)
        self.came.set()
        return handler


@asynccontextmanager
async def _served(metrics, *, arrivals=None, traffic=None, **handlers):
    """An intercepted server of weft.v1.Test, and the interceptor."""
    interceptor = interceptor_of(metrics, traffic)
    server = grpc.aio.server(interceptors=[arrivals or _Arrivals(), interceptor])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("weft.v1.Test", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield interceptor, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def _counted(metrics, name, label):
    """What a counter of calls without a model says, by label; without zeros."""
    families = text_string_to_metric_families(MetricsPage(metrics).render()[1].decode())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {sample.labels[label]: sample.value for sample in samples if sample.value}


async def _flood(request, context):
    """Messages that soon fill every window between server and caller."""
    while True:
        yield bytes(1 << 20)


async def _for_ever(request, context):
    await asyncio.Event().wait()


def test_a_caller_who_leaves_during_a_write_is_no_bug():
    """One who never reads makes the write wait; when they go it fails, and counts as cancelled."""

    async def run():
        metrics = Metrics()
        handler = grpc.unary_stream_rpc_method_handler(_flood, request_deserializer=bytes)
        async with _served(metrics, Flood=handler) as (interceptor, target):
            with capture_logs() as logs:
                for _ in range(20):
                    async with grpc.aio.insecure_channel(target) as channel:
                        call = channel.unary_stream("/weft.v1.Test/Flood")(b"")
                        await call.read()
                        await asyncio.sleep(0.05)
                        call.cancel()
                await asyncio.wait_for(interceptor.gate.idle(), 20)
        assert [] == [entry for entry in logs if entry["event"] == "bug"]
        # A client of another test may look for its server at this port.
        counted = _counted(metrics, "weft_requests_total", "code") | {"UNIMPLEMENTED": 0}
        assert {"CANCELLED": 20, "UNIMPLEMENTED": 0} == counted
        assert 0 == interceptor.traffic.incoming.num_bytes

    asyncio.run(run())


def test_a_deadline_is_one_whoever_notices_it_first():
    """The caller's clock, gRPC's or ours: each late call is counted as late, with its reason."""

    async def run():
        metrics = Metrics()
        async with _served(metrics, Wait=grpc.unary_unary_rpc_method_handler(_for_ever, bytes)) as (
            interceptor,
            target,
        ):
            async with grpc.aio.insecure_channel(target) as channel:
                late = []
                # Few at a time: how late the server sees them is what they must not depend on.
                for _ in range(2):
                    calls = [channel.unary_unary("/weft.v1.Test/Wait")(b"", timeout=2.5) for _ in range(10)]
                    late += await asyncio.gather(*calls, return_exceptions=True)
            await asyncio.wait_for(interceptor.gate.idle(), 20)
        assert [grpc.StatusCode.DEADLINE_EXCEEDED] * 20 == [error.code() for error in late]
        assert {"DEADLINE_EXCEEDED": 20} == _counted(metrics, "weft_requests_total", "code")
        assert {"DEADLINE": 20} == _counted(metrics, "weft_rejected_total", "reason")

    asyncio.run(run())


def test_a_method_that_there_is_not_is_counted():
    """UNIMPLEMENTED calls are RPCs that ended, too."""

    async def run():
        metrics = Metrics()
        async with _served(metrics) as (_, target), grpc.aio.insecure_channel(target) as channel:
            for method in ("/weft.v1.Test/Nothing", "/other.Service/Nothing"):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await channel.unary_unary(method)(b"")
                assert grpc.StatusCode.UNIMPLEMENTED is error.value.code()
        assert {"UNIMPLEMENTED": 2} == _counted(metrics, "weft_requests_total", "code")

    asyncio.run(run())


def test_a_call_that_ends_before_its_handler_begins_is_counted():
    """A caller who opens a call, sends no message and goes is an RPC that ended as well."""

    async def run():
        metrics, arrivals = Metrics(), _Arrivals()
        wait = grpc.unary_unary_rpc_method_handler(_for_ever, bytes)
        served = _served(metrics, arrivals=arrivals, Wait=wait)
        async with served as (interceptor, target), grpc.aio.insecure_channel(target) as channel:
            for _ in range(20):
                arrivals.came.clear()
                # On the wire a stream of requests, of which none comes, is a request that does not come.
                call = channel.stream_unary("/weft.v1.Test/Wait")()
                await asyncio.wait_for(arrivals.came.wait(), 10)
                call.cancel()
            await until(lambda: {"CANCELLED": 20} == _counted(metrics, "weft_requests_total", "code"))
        assert 0 == interceptor.gate.num_active

    asyncio.run(run())


def test_who_has_much_to_read_is_refused_before_the_message(monkeypatch):
    """A caller with more unread than one may have hears BYTE_BUDGET. Another connection's call goes on."""
    monkeypatch.setattr("weft_server.transport.outgoing.MAX_SHARE", 0.0)
    asked = []

    async def answer(request, context):
        asked.append(request)
        return b"answer"

    async def run():
        metrics = Metrics()
        handlers = {
            "Flood": grpc.unary_stream_rpc_method_handler(_flood, request_deserializer=bytes),
            "Ask": grpc.unary_unary_rpc_method_handler(answer, request_deserializer=bytes),
        }
        own = [("grpc.use_local_subchannel_pool", 1)]
        async with (
            _served(metrics, **handlers) as (interceptor, target),
            grpc.aio.insecure_channel(target, own) as channel,
        ):
            flood = channel.unary_stream("/weft.v1.Test/Flood")(b"")
            await flood.read()
            await until(lambda: interceptor.traffic.outgoing.num_sending)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary("/weft.v1.Test/Ask")(b"unseen")
            assert grpc.StatusCode.RESOURCE_EXHAUSTED is refused.value.code()
            async with grpc.aio.insecure_channel(target, own) as other:
                assert b"answer" == await other.unary_unary("/weft.v1.Test/Ask")(b"seen")
            flood.cancel()
            await asyncio.wait_for(interceptor.gate.idle(), 20)
        assert [b"seen"] == asked
        assert {"BYTE_BUDGET": 1} == _counted(metrics, "weft_rejected_total", "reason")

    asyncio.run(run())


def test_too_many_open_calls_are_refused():
    """One call more than the bound is refused before its message, and taken when another has ended."""

    async def run():
        handlers = {"Wait": grpc.unary_unary_rpc_method_handler(_for_ever, request_deserializer=bytes)}
        bounded = _served(Metrics(), traffic=Traffic(max_open_calls=2), **handlers)
        async with bounded as (interceptor, target), grpc.aio.insecure_channel(target) as channel:
            wait = channel.unary_unary("/weft.v1.Test/Wait")
            calls = [wait(b"") for _ in range(2)]
            await until(lambda: 2 == interceptor.gate.num_active)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await wait(b"")
            assert grpc.StatusCode.RESOURCE_EXHAUSTED is refused.value.code()
            calls[0].cancel()
            await until(lambda: 1 == interceptor.traffic.num_open)
            calls.append(wait(b""))
            await until(lambda: 2 == interceptor.gate.num_active)

    asyncio.run(run())


def test_a_message_is_held_until_its_call_ends():
    """Its bytes are counted while the call goes on, and not when its caller has gone."""

    async def run():
        handlers = {"Wait": grpc.unary_unary_rpc_method_handler(_for_ever, request_deserializer=bytes)}
        async with (
            _served(Metrics(), **handlers) as (interceptor, target),
            grpc.aio.insecure_channel(target) as channel,
        ):
            call = channel.unary_unary("/weft.v1.Test/Wait")(bytes(1000))
            await until(lambda: 1000 == interceptor.traffic.incoming.num_bytes)
            call.cancel()
            await asyncio.wait_for(interceptor.gate.idle(), 20)
        assert 0 == interceptor.traffic.incoming.num_bytes

    asyncio.run(run())


def test_what_a_message_becomes_is_held_with_its_bytes():
    """Each of its fields counts, also those of messages inside: as objects they take more than as bytes."""
    message = TokenizeRequest(text="a b", model={"name": "m"})

    async def run():
        held = []

        async def note(request, context):
            assert message == request
            held.append(interceptor.traffic.incoming.num_bytes)
            return b""

        handler = grpc.unary_unary_rpc_method_handler(note, TokenizeRequest.FromString)
        async with (
            _served(Metrics(), Note=handler) as (interceptor, target),
            grpc.aio.insecure_channel(target) as channel,
        ):
            await channel.unary_unary("/weft.v1.Test/Note")(message.SerializeToString())
        assert [message.ByteSize() + 3 * 128] == held

    asyncio.run(run())


def test_it_is_quiet_when_no_call_has_come_for_a_while():
    """Refused ones count too: who asks still has not heard that the server leaves. A call that goes on ends no wait."""

    async def run():
        handlers = {"Wait": grpc.unary_unary_rpc_method_handler(_for_ever, request_deserializer=bytes)}
        async with (
            _served(Metrics(), **handlers) as (interceptor, target),
            grpc.aio.insecure_channel(target) as channel,
        ):
            begun = time.monotonic()
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary("/weft.v1.Test/Nothing")(b"")
            await interceptor.gate.quiet(0.2, 60)
            assert time.monotonic() - begun >= 0.2
            call = channel.unary_unary("/weft.v1.Test/Wait")(b"")
            await until(lambda: interceptor.gate.num_active)
            await interceptor.gate.quiet(0.01, 0.05)
            assert interceptor.gate.num_active
            call.cancel()
            await asyncio.wait_for(interceptor.gate.quiet(0.01, 60), 30)
            assert not interceptor.gate.num_active

    asyncio.run(run())


def test_a_caller_who_went_is_told_nothing():
    """One whose message is ended, and whose connection is gone already: that is no error of the server's."""

    async def run():
        said, loop = [], asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: said.append(what))
        wait = grpc.unary_unary_rpc_method_handler(_for_ever, bytes)
        async with _served(Metrics(), Wait=wait) as (interceptor, target):
            caller = await asyncio.to_thread(RawCaller, target)
            for _ in range(3):
                caller.open("/weft.v1.Test/Wait")
            await until(lambda: 3 == interceptor.traffic.incoming.num_receiving)
            caller.socket.close()
            # gRPC learns of it on threads of its own, and this loop does not before it ends the messages.
            time.sleep(0.5)  # noqa: ASYNC251
            interceptor.gate.refuse()
            await until(lambda: 0 == interceptor.traffic.num_open and not interceptor.traffic.incoming.ending)
            gc.collect()
        assert [] == said

    asyncio.run(run())


def test_a_call_that_has_its_status_is_not_told_another():
    """A message may come just as it is ended: its handler refuses it first. That is no error of the server's."""
    told = []

    async def refused(_, context):
        status = to_status(MessageTooSlow())
        try:
            await abort(context, status)
        finally:
            await incoming._tell(context, status)
            told.append(status.code)

    async def run():
        wait = grpc.unary_unary_rpc_method_handler(refused, bytes)
        async with _served(Metrics(), Wait=wait) as (_, target), grpc.aio.insecure_channel(target) as channel:
            call = channel.unary_unary("/weft.v1.Test/Wait")(b"a")
            assert to_status(MessageTooSlow()).code == await asyncio.wait_for(call.code(), 30)
            assert [await call.code()] == told

    asyncio.run(run())


def test_who_is_told_later_that_there_is_no_room_holds_nothing_meanwhile(monkeypatch):
    """Neither the bytes of its message nor its model, which may leave, nor what stands in the frames of its refusal."""
    monkeypatch.setattr("weft_server.admission.load_shedding.BURST", 0.0)
    monkeypatch.setattr("weft_server.admission.load_shedding.HOLD_S", 60.0)
    held, frames = [], []

    class Large:
        """What a handler makes of a message."""

    async def refuse(request, context):
        large = Large()
        frames.append(weakref.ref(large))
        hold = SimpleNamespace(metrics=None, hold=lambda: held.append(1), release=held.pop)
        REQUEST_CONTEXT.get().take(hold)
        assert [1] == held
        raise Overloaded("QUEUE_FULL", "no room")

    async def run():
        handlers = {"Ask": grpc.unary_unary_rpc_method_handler(refuse, request_deserializer=bytes)}
        async with (
            _served(Metrics(), **handlers) as (interceptor, target),
            grpc.aio.insecure_channel(target) as channel,
        ):
            call = channel.unary_unary("/weft.v1.Test/Ask")(bytes(1000))
            await until(lambda: frames and not interceptor.traffic.incoming.num_bytes)
            assert ([], None) == (held, frames[0]())
            assert (1, False) == (interceptor.gate.num_active, call.done())
            call.cancel()
            await asyncio.wait_for(interceptor.gate.idle(), 20)

    asyncio.run(run())
