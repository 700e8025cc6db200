"""Health over real gRPC: readiness, liveness and models apart, and every watcher hears of every change."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from intercepted import interceptor_of
from waiting import until
from weft_server.rpc.health import Health

SERVICES = ("weft.v1.TranslationService", "weft.v1.CaptionService")
STATUS = health_pb2.HealthCheckResponse.ServingStatus


@asynccontextmanager
async def _served(**bounds):
    """Health on a real server, and a stub for it."""
    async with _channel(**bounds) as (health, channel):
        yield health, health_pb2_grpc.HealthStub(channel)


@asynccontextmanager
async def _channel(**bounds):
    health = Health(SERVICES, **bounds)
    server = grpc.aio.server(interceptors=[interceptor_of()])
    health.add_to(server)
    health.port = port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield health, channel
    finally:
        await server.stop(None)


async def _check(stub, service):
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
    return STATUS.Name(answer.status)


async def _checks(stub):
    return [await _check(stub, service) for service in ("", *SERVICES, "live")]


async def _next(call):
    return STATUS.Name((await asyncio.wait_for(call.read(), 60)).status)


def test_ready_and_live_are_apart():
    """Start: live, not ready. Ready: both. Drain: not ready for good, and still live."""

    async def scenario():
        async with _served() as (health, stub):
            assert ["NOT_SERVING"] * 3 + ["SERVING"] == await _checks(stub)
            await health.set_ready(serving=True)
            assert ["SERVING"] * 4 == await _checks(stub)
            await health.set_live(serving=False)
            assert ["SERVING"] * 3 + ["NOT_SERVING"] == await _checks(stub)
            await health.set_live(serving=True)
            await health.set_ready(serving=False)
            assert ["NOT_SERVING"] * 3 + ["SERVING"] == await _checks(stub)
            await health.set_ready(serving=True)
            await health.drain()
            await health.set_ready(serving=True)
            assert ["NOT_SERVING"] * 3 + ["SERVING"] == await _checks(stub)

    asyncio.run(scenario())


def test_models_have_a_status_of_their_own():
    """A model answers or not under model/<name>; one that is not known is NOT_FOUND."""

    async def scenario():
        async with _served() as (health, stub):
            await health.set_model("en-es", serving=True)
            await health.set_model("topics", serving=False)
            assert "SERVING" == await _check(stub, "model/en-es")
            assert "NOT_SERVING" == await _check(stub, "model/topics")
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await _check(stub, "model/none")
            assert error.value.code() is grpc.StatusCode.NOT_FOUND

    asyncio.run(scenario())


def test_every_watcher_hears_of_every_change():
    """Watch sends the status now and at each change, to each watcher, whoever else comes, leaves or does not read."""

    async def scenario():
        async with _served() as (health, stub):
            request = health_pb2.HealthCheckRequest(service=SERVICES[0])
            leaver, idler, watcher = stub.Watch(request), stub.Watch(request), stub.Watch(request)
            assert ["NOT_SERVING"] * 2 == [await _next(leaver), await _next(watcher)]
            leaver.cancel()
            await asyncio.sleep(0.05)
            await health.set_ready(serving=True)
            assert "SERVING" == await _next(watcher)
            await health.set_live(serving=False)  # of no interest to this watcher
            await health.drain()
            assert "NOT_SERVING" == await _next(watcher)
            watcher.cancel()
            idler.cancel()

    asyncio.run(scenario())


def test_a_service_may_become_known_later():
    """Watching a model that is still to come says SERVICE_UNKNOWN first."""

    async def scenario():
        async with _served() as (health, stub):
            call = stub.Watch(health_pb2.HealthCheckRequest(service="model/en-es"))
            assert "SERVICE_UNKNOWN" == await _next(call)
            await health.set_model("en-es", serving=True)
            assert "SERVING" == await _next(call)
            call.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_bad_bytes_are_the_callers_error(method):
    """What is no HealthCheckRequest is refused with a typed status, as everywhere."""

    async def scenario():
        async with _channel() as (_, channel):
            kind = channel.unary_unary if method == "Check" else channel.unary_stream
            call = kind(f"/grpc.health.v1.Health/{method}")(b"\x0a\xff")
            assert await asyncio.wait_for(call.code(), 5) is grpc.StatusCode.INVALID_ARGUMENT
            assert "not a valid message" in await call.details()

    asyncio.run(scenario())


def test_of_a_long_name_a_little_is_said():
    """An unknown service's name may have thousands of characters; a little of it is said."""

    async def scenario():
        async with _served() as (_, stub):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await _check(stub, "x" * 4000)
            assert error.value.code() is grpc.StatusCode.NOT_FOUND
            assert len(error.value.details()) < 200
            assert "there are live, accepting, model/NAME, " in error.value.details()

    asyncio.run(scenario())


def test_accepting_begins_after_the_first_models_and_ends_with_refusals():
    """Not before `accept`. Then whatever the models do, and through a drain's delay. Never behind `refuse`."""

    async def scenario():
        async with _served() as (health, stub):
            watch = stub.Watch(health_pb2.HealthCheckRequest(service="accepting"))
            assert "NOT_SERVING" == await _next(watch)
            await health.accept()
            assert "SERVING" == await _next(watch)
            await health.set_model("topics", serving=False)
            await health.drain()
            assert "SERVING" == await _check(stub, "accepting")
            await health.refuse()
            await health.accept()
            assert "NOT_SERVING" == await _check(stub, "accepting")

    asyncio.run(scenario())


def test_a_watch_ends_once_requests_are_refused():
    """It says so and ends, so that a watcher behind a proxy asks again and finds another server."""

    async def scenario():
        async with _served() as (health, stub):
            await health.accept()
            call = stub.Watch(health_pb2.HealthCheckRequest(service="accepting"))
            assert "SERVING" == await _next(call)
            await health.refuse()
            assert "NOT_SERVING" == await _next(call)
            assert grpc.aio.EOF is await asyncio.wait_for(call.read(), 60)

    asyncio.run(scenario())


async def _watch(stub, service="live"):
    """A watch, and the name of what it says first, or of the status that refuses it."""
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=30)
    try:
        said = await watch.read()
    except grpc.aio.AioRpcError as error:
        return watch, error.code().name
    return watch, STATUS.Name(said.status)


def test_watches_are_bounded():
    """One watch more than the bound is refused, until another one ends. Check is always answered.

    Where the service serves, UNIMPLEMENTED refuses it: to a client of gRPC that means to call without watching.
    """

    async def scenario():
        async with _served(max_watches=2) as (_, stub):
            watches = [await _watch(stub) for _ in range(2)]
            assert ["SERVING"] * 2 == [said for _, said in watches]
            assert "UNIMPLEMENTED" == (await _watch(stub))[1]
            assert "RESOURCE_EXHAUSTED" == (await _watch(stub, ""))[1]
            assert "SERVING" == await _check(stub, "live")
            watches[0][0].cancel()
            async with asyncio.timeout(10):
                while "SERVING" != (await _watch(stub))[1]:
                    pass

    asyncio.run(scenario())


def test_a_connection_has_few_watches(monkeypatch):
    """One connection has no more than its share. Another one still watches. Ended ones are not counted."""
    monkeypatch.setattr("weft_server.rpc.health.MAX_WATCHES_PER_CONNECTION", 2)

    async def scenario():
        async with _served() as (health, stub):
            held = [await _watch(stub) for _ in range(2)]
            assert ["SERVING", "SERVING", "UNIMPLEMENTED"] == [said for _, said in [*held, await _watch(stub)]]
            target = f"127.0.0.1:{health.port}"
            async with grpc.aio.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as other:
                assert "SERVING" == (await _watch(health_pb2_grpc.HealthStub(other)))[1]
            for watch, _ in held:
                watch.cancel()
            await until(lambda: 0 == health.num_watches)
            assert "SERVING" == (await _watch(stub))[1]

    asyncio.run(scenario())


def test_a_watch_ends(monkeypatch):
    """After its time a watch ends with OK, and its client may begin another."""
    monkeypatch.setattr("weft_server.rpc.health.WATCH_S", 0.2)

    async def scenario():
        async with _served() as (health, stub):
            watch, said = await _watch(stub)
            assert "SERVING" == said
            assert grpc.aio.EOF is await asyncio.wait_for(watch.read(), 20)
            assert grpc.StatusCode.OK is await watch.code()
            assert 0 == health.num_watches

    asyncio.run(scenario())
