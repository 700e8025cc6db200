"""What gRPC does for us by the channel's settings: retry, balance, reconnect."""

import asyncio
import threading
import time

import pytest
from grpc import StatusCode
from grpc_health.v1 import health

import weft
from fakes import EMPTY, Failure, fake_server
from weft._channel import CHANNEL_OPTIONS, CallSettings
from weft_server.rpc.grpc_server import MIN_PING_INTERVAL_MS

AWAY = Failure(StatusCode.UNAVAILABLE, "DRAINING", "draining")


def test_unavailable_is_retried(client, server):
    """A call that two times finds the server unavailable succeeds at the third; sync and asyncio."""
    server.servicer.script.extend([AWAY, AWAY])
    assert "b a" == client.translate("a b").text
    assert 3 == len(server.servicer.seen)

    async def run():
        async with weft.AsyncClient(server.target) as aclient:
            return (await aclient.translate("a b")).text

    server.servicer.script.extend([AWAY, AWAY])
    assert "b a" == asyncio.run(run())
    assert 6 == len(server.servicer.seen)


def test_a_stream_is_retried_before_its_first_message(client, server):
    """As long as nothing has come, starting again is safe."""
    server.servicer.script.append(AWAY)

    assert ["b", " a"] == list(client.stream_generate("a b"))
    assert 2 == len(server.servicer.seen)


def test_a_stream_is_never_retried_after_its_first_message(client, server):
    """Once text has come, the error is the caller's: a second start could tell another story."""
    server.servicer.script.append(Failure(StatusCode.UNAVAILABLE, "DRAINING", "draining", after=1))
    stream = client.stream_generate("a b")
    assert "b" == next(stream)
    with pytest.raises(weft.Unavailable):
        next(stream)

    assert 1 == len(server.servicer.seen)


def test_an_overload_is_never_retried(client, server):
    """A full queue is the caller's to wait for: Overloaded after one attempt."""
    server.servicer.script.append(Failure(StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", retry_after=0.1))
    with pytest.raises(weft.Overloaded):
        client.translate("a")

    assert 1 == len(server.servicer.seen)


def test_requests_go_round_all_servers():
    """Of two addresses behind one target, both answer about half of the calls; sync and asyncio."""
    with fake_server() as one, fake_server() as two:
        target = f"ipv4:{one.target},{two.target}"
        with weft.Client(target) as client:
            call_until_both_answer(lambda: client.translate("a"), one, two)
            before = len(one.servicer.seen), len(two.servicer.seen)
            for _ in range(20):
                client.translate("a")
            after = len(one.servicer.seen), len(two.servicer.seen)

        assert (before[0] + 10, before[1] + 10) == after

        async def run():
            async with weft.AsyncClient(target) as aclient:
                for _ in range(50):
                    await aclient.translate("b")

        asyncio.run(run())
        assert {"a", "b"} == {seen.request.text for seen in one.servicer.seen}
        assert {"a", "b"} == {seen.request.text for seen in two.servicer.seen}


def test_a_server_that_is_away_is_passed_by():
    """A call that one server turns away is answered by the other."""
    with fake_server() as one, fake_server() as two, weft.Client(f"ipv4:{one.target},{two.target}") as client:
        call_until_both_answer(lambda: client.translate("a"), one, two)
        one.servicer.script.extend([AWAY] * 100)

        assert ["a"] * 10 == [client.translate("a").text for _ in range(10)]


def call_until_both_answer(call, one, two):
    """Wait until both connections stand."""
    give_up = time.monotonic() + 60
    while not (one.servicer.seen and two.servicer.seen):
        assert time.monotonic() < give_up
        call()


def test_a_picture_is_retried_too(client, server):
    """What may have to be sent again is kept, and by gRPC's default no more than 256 KiB of it."""
    server.servicer.script.append(AWAY)

    assert client.caption(bytes(1 << 20)).text


def test_a_long_drain_does_not_exhaust_retries():
    """One of two servers refuses everything for long: every call is answered by the other."""
    with fake_server() as one, fake_server() as other:
        one.servicer.script.extend([AWAY] * 1000)
        with weft.Client(f"ipv4:{one.target},{other.target}", timeout=60.0) as client:
            for _ in range(160):
                assert client.translate("a b").text
        assert len(one.servicer.seen) > 60


def test_waiting_ends_when_the_server_is_ready(client, server):
    """`wait_until_ready` returns once the server says that it serves, and gives up in time when it never does."""
    server.set_health("", serving=False)
    with pytest.raises(weft.DeadlineExceeded, match=r"^not ready in time: .*: it answers that it does not serve$"):
        client.wait_until_ready(timeout=3)
    threading.Timer(0.3, server.set_health, [""], {"serving": True}).start()
    client.wait_until_ready(timeout=60)

    assert weft.Health.SERVING == client.health()


def test_waiting_bears_that_there_is_no_server_yet():
    """A server that comes up later at the address is found; sync and asyncio."""
    with fake_server(host=EMPTY) as server:
        port = int(server.target.rpartition(":")[2])

    async def wait():
        async with weft.AsyncClient(server.target) as client:
            with pytest.raises(weft.DeadlineExceeded, match=r"^not ready in time: .*: (no answer|.* refused)$"):
                await client.wait_until_ready(timeout=0.3)
            with fake_server(port, host=EMPTY):
                await client.wait_until_ready(timeout=60)

    with weft.Client(server.target) as client:
        with pytest.raises(weft.DeadlineExceeded, match=r"^not ready in time: .*: (no answer|.* refused)$"):
            client.wait_until_ready(timeout=0.3)
        with fake_server(port, host=EMPTY):
            client.wait_until_ready(timeout=60)
    asyncio.run(wait())


def test_threads_share_a_client(client, server):
    """Eight threads ask at once, and each gets its own answer."""
    answers = {}

    def ask(name):
        answers[name] = client.translate(f"a {name}").text

    threads = [threading.Thread(target=ask, args=(f"t{index}",)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {f"t{index}": f"t{index} a" for index in range(8)} == answers


def test_a_server_that_takes_no_new_requests_is_passed_by(server):
    """Of two servers the other one is asked, and asking how it is reaches both; sync and asyncio."""
    with fake_server() as other:
        target = f"ipv4:{server.target},{other.target}"
        server.set_health("accepting", serving=False)

        async def run():
            async with weft.AsyncClient(target) as client:
                for _ in range(20):
                    assert "a" == (await client.translate("a")).text
                    assert ["b"] == [piece async for piece in client.stream_translate("b")]

        with weft.Client(target) as client:
            for _ in range(20):
                assert "a" == client.translate("a").text
                assert ["b"] == list(client.stream_translate("b"))
            for _ in range(4):
                assert 2 == len(client.list_models())
        asyncio.run(run())
        asked = {seen.method for seen in server.servicer.seen}
        assert 80 == len([seen for seen in other.servicer.seen if seen.method.endswith("Translate")])
    assert {"ListModels"} == asked


def test_where_no_server_takes_new_requests_one_says_why(client, server):
    """One is asked all the same: its own words come back, or its answer. The deadline is that of the whole call."""
    server.set_health("accepting", serving=False)
    no = Failure(StatusCode.FAILED_PRECONDITION, "NO", "not like this")

    async def run():
        async with weft.AsyncClient(server.target) as aclient:
            server.servicer.script.append(no)
            with pytest.raises(weft.FailedPrecondition, match="not like this"):
                await aclient.translate("b")
            assert ["b"] == [piece async for piece in aclient.stream_translate("b")]
            assert "b a" == (await aclient.translate("a b", timeout=10)).text
            assert server.servicer.seen[-1].seconds_left < 9.5

    asyncio.run(run())
    assert "a" == client.translate("a").text
    server.servicer.script.append(no)
    with pytest.raises(weft.FailedPrecondition, match="not like this"):
        next(client.stream_translate("b"))
    assert ["b", " a"] == list(client.stream_generate("a b", timeout=10))
    assert "b a" == client.translate("a b", timeout=10).text
    # The first server that is asked turns it away, and the second has what is left.
    assert server.servicer.seen[-1].seconds_left < 9.5


@pytest.mark.parametrize("settings", [{"metadata": {"token": "x"}}, {"watch_health": False}])
def test_health_is_not_watched_where_that_may_be_refused(server, settings):
    """The watch carries no metadata, so by default there is none beside a token; `watch_health` decides."""
    server.set_health("accepting", serving=False)
    with weft.Client(server.target, **settings) as client:
        assert "a" == client.translate("a").text
    with fake_server() as other:
        target = f"ipv4:{server.target},{other.target}"
        with weft.Client(target, **settings | {"watch_health": True}) as client:
            assert ["a"] * 8 == [client.translate("a").text for _ in range(8)]
        assert 8 == len(other.servicer.seen)


class Unwatched(health.HealthServicer):
    """Refuses each watch, as a gateway may, or a server that has no place for one more."""

    def Watch(self, request, context, send_response_callback=None):  # noqa: N802 - gRPC names it
        """Refuse."""
        context.abort(StatusCode.RESOURCE_EXHAUSTED, "too many callers watch")


@pytest.fixture
def unwatched():
    """Where a server is that refuses each watch."""
    with fake_server(checks=Unwatched(experimental_non_blocking=False)) as server:
        yield server.target


@pytest.mark.parametrize("begin", ["call", "stream", "many"])
def test_a_refused_watch_makes_no_client_useless(unwatched, begin):
    """Calls, streams and many inputs go on without it, whichever comes first."""
    with weft.Client(unwatched) as client:
        calls = {
            "call": lambda: client.translate("a b").text,
            "stream": lambda: "".join(client.stream_generate("a b")),
            "many": lambda: next(client.translate_many(["a b"]).or_raise()).text,
        }
        assert ["b a"] * 3 == [calls[name]() for name in (begin, *(calls.keys() - {begin}))]


def test_a_refused_watch_makes_no_client_of_asyncio_useless(unwatched):
    """The same there."""

    async def run():
        async with weft.AsyncClient(unwatched) as client:
            many = [answer.text async for answer in client.translate_many(["a b"] * 5).or_raise()]
            streamed = "".join([piece async for piece in client.stream_generate("a b")])
            return {*many, streamed, (await client.translate("a b")).text}

    assert {"b a"} == asyncio.run(run())


def test_a_frozen_server_is_left_in_time():
    """The pings come no closer than the server permits, and leave a call time for a retry elsewhere."""
    options = dict(CHANNEL_OPTIONS)
    every, answered = options["grpc.keepalive_time_ms"], options["grpc.http2.ping_timeout_ms"]
    assert every >= 1.5 * MIN_PING_INTERVAL_MS
    assert every + answered <= 1000 * CallSettings.of("a:1", 60.0, None).timeout / 2
