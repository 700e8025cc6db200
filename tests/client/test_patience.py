"""`wait`: a call waits for a server that is not there, or has no room. An answer that has begun is not begun again."""

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from grpc import StatusCode

import weft
from fakes import EMPTY, Failure, fake_server
from waiting import until
from weft._patience import NUM_RETRIES, Patience, pieces
from weft_command import running

FULL = Failure(StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", "full", retry_after=0.05)
LONG = replace(FULL, retry_after=3600.0)
# By then a caller whom the server has refused pauses. One who does not yet is ended in the call: that is tried too.
SOON_S = 0.3
# gRPC's own five attempts, and one.
AWAY = [Failure(StatusCode.UNAVAILABLE, "STARTING", "starting", retry_after=0.05)] * 6


def call(target, text="a b", **options):
    """One call."""
    with weft.Client(target, **options) as client:
        return client.translate(text).text


def stream(target, text="a b", **options):
    """A stream, read to its end."""
    with weft.Client(target, **options) as client:
        return "".join(client.stream_translate(text))


def call_async(target, text="a b", **options):
    """One awaited call."""

    async def run():
        async with weft.AsyncClient(target, **options) as client:
            return (await client.translate(text)).text

    return asyncio.run(run())


def stream_async(target, text="a b", **options):
    """A stream of asyncio, read to its end."""

    async def run():
        async with weft.AsyncClient(target, **options) as client:
            return "".join([piece async for piece in client.stream_translate(text)])

    return asyncio.run(run())


ASKS = [call, stream, call_async, stream_async]


@pytest.fixture
def free_target():
    """host:port where nobody is yet."""
    with fake_server(host=EMPTY) as server:
        return server.target


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("failures", [[FULL] * 3, AWAY], ids=["full", "away"])
def test_what_passes_is_waited_for(server, ask, failures):
    """A full server, and one that starts, are asked again; without `wait` they are errors, as ever."""
    server.servicer.script.extend(failures)
    assert "b a" == ask(server.target, wait=60.0)
    assert len(failures) + 1 == len(server.servicer.seen)

    server.servicer.script.extend(failures)
    with pytest.raises((weft.Overloaded, weft.Unavailable)):
        ask(server.target)


@pytest.mark.parametrize("ask", ASKS)
def test_a_server_that_is_not_there_is_waited_for(free_target, ask):
    """Until it is."""
    given = []
    asking = threading.Thread(target=lambda: given.append(ask(free_target, wait=60.0)))
    asking.start()
    asking.join(2)  # longer than gRPC itself tries
    assert [] == given
    with fake_server(int(free_target.rpartition(":")[2]), host=EMPTY):
        asking.join(60)
    assert ["b a"] == given


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("code", [StatusCode.INVALID_ARGUMENT, StatusCode.INTERNAL, StatusCode.CANCELLED])
def test_what_does_not_pass_is_not_asked_again(server, ask, code):
    """A wrong request, a bug, and what somebody cancelled."""
    server.servicer.script.append(Failure(code, "WHY"))
    with pytest.raises(weft.Error):
        ask(server.target, wait=60.0)
    assert 1 == len(server.servicer.seen)


@pytest.mark.parametrize("ask", [stream, stream_async])
def test_a_stream_that_has_begun_is_not_begun_again(server, ask):
    """A second start could tell another story."""
    server.servicer.script.append(Failure(StatusCode.UNAVAILABLE, "DRAINING", after=1))
    with pytest.raises(weft.Unavailable):
        ask(server.target, wait=60.0)
    assert 1 == len(server.servicer.seen)


@pytest.mark.parametrize("ask", ASKS)
def test_the_wait_has_an_end(server, ask):
    """Then it is the error that it would have been at once; a pause beyond the end is not begun."""
    server.servicer.script.extend([replace(FULL, retry_after=0.2)] * 1000)
    with pytest.raises(weft.Overloaded):
        ask(server.target, wait=1.0)
    # The wait begins with the first refusal: however long the machine stands still after it, one pause is granted.
    assert 2 <= len(server.servicer.seen) <= 6

    server.servicer.script.clear()
    server.servicer.script.extend([LONG] * 2)
    server.servicer.seen.clear()
    with pytest.raises(weft.Overloaded):
        ask(server.target, wait=60.0)
    with pytest.raises(weft.Overloaded):
        ask(server.target, wait=1e6, timeout=60.0)
    assert 2 == len(server.servicer.seen)


@pytest.mark.parametrize("ask", ASKS)
def test_the_timeout_holds(server, free_target, ask):
    """It is for all attempts together, and the error says why there was no answer."""
    server.servicer.script.extend([FULL, 120.0])
    with ThreadPoolExecutor(1) as pool:
        nobody = pool.submit(ask, free_target, wait=100.0, timeout=4.0)
        with pytest.raises(weft.DeadlineExceeded, match=r"within the timeout.*; before that: full"):
            ask(server.target, wait=100.0, timeout=3.0)
        assert server.servicer.seen[1].seconds_left < 3.0
        with pytest.raises((weft.Unavailable, weft.DeadlineExceeded), match="refused"):
            nobody.result()


def test_the_servers_pause_is_kept():
    """Of many who were refused at once not all come back at once, and nobody before his time."""
    patience = [Patience(60.0, 60.0) for _ in range(100)]
    pauses = [each.pause_s(weft.Overloaded("full", retry_after=2.0)) for each in patience]
    assert 2.0 <= min(pauses) < max(pauses) <= 2.5


def test_pauses_grow_where_the_server_names_none():
    """By half of themselves at least, up to five seconds."""
    patience = Patience(1e6, 1e6)
    pauses = [patience.pause_s(weft.Unavailable("away")) for _ in range(12)]
    longest = [min(0.2 * 2**number, 5.0) for number in range(12)]
    assert all(whole / 2 <= pause <= whole for pause, whole in zip(pauses, longest, strict=True))


@pytest.mark.parametrize(
    "error",
    [
        weft.Unavailable("no authority", reason="TLS"),
        weft.Unavailable("refused", reason="MODEL_NOT_READY"),
        weft.AccessDenied("no"),
        weft.DeadlineExceeded("late"),
    ],
)
def test_what_no_time_mends_is_raised(error):
    """A certificate, for one, and a bundle that was refused: a server that loads a model names a time."""
    with pytest.raises(type(error)) as caught:
        Patience(60.0, 60.0).pause_s(error)
    assert error is caught.value


def test_a_stream_asks_four_times_more_where_a_bundle_was_refused():
    """As gRPC does for calls: another server may have the model. Nothing waits beyond that."""
    patience, error = Patience(60.0, 60.0, NUM_RETRIES), weft.Unavailable("refused", reason="MODEL_NOT_READY")
    assert all(patience.pause_s(error) < 1.0 for _ in range(4))
    with pytest.raises(weft.Unavailable):
        patience.pause_s(error)


def test_a_pause_is_over_when_somebody_says_so():
    """Whoever sleeps looks."""
    assert [] == list(pieces(60.0, lambda: True))
    assert max(pieces(0.01, lambda: False), default=0.0) <= 0.1


def asked_and_away(target):
    """A client whose calls wait long."""
    return weft.Client(target, wait=1e6, timeout=1e6)


def test_closing_the_client_ends_a_pause(server):
    """Of a call and of a stream: an Error says so."""
    server.servicer.script.extend([LONG] * 2)
    client = asked_and_away(server.target)
    errors = []

    def ask(what):
        with contextlib.suppress(StopIteration):
            try:
                what()
            except weft.Error as error:
                errors.append(error.reason)

    threads = [
        threading.Thread(target=ask, args=(what,))
        for what in (lambda: client.translate("a"), lambda: next(client.stream_translate("a")))
    ]
    for thread in threads:
        thread.start()
    asyncio.run(until(lambda: 2 == len(server.servicer.seen)))
    time.sleep(SOON_S)
    client.close()
    for thread in threads:
        thread.join(30)
    assert 2 == len(errors)


def test_cancelling_a_stream_ends_its_pause(server):
    """From another thread, or by another task: Cancelled."""
    server.servicer.script.extend([LONG] * 2)
    with asked_and_away(server.target) as client:
        begun = client.stream_translate("a")

        def cancel():
            asyncio.run(until(lambda: 1 == len(server.servicer.seen)))
            time.sleep(SOON_S)
            begun.cancel()

        threading.Thread(target=cancel, daemon=True).start()
        with pytest.raises(weft.Cancelled):
            next(begun)

    async def run():
        async with weft.AsyncClient(server.target, wait=1e6, timeout=1e6) as client:
            begun = client.stream_translate("a")

            async def cancel():
                await until(lambda: 2 == len(server.servicer.seen))
                await asyncio.sleep(SOON_S)
                begun.cancel()

            cancelling = asyncio.create_task(cancel())
            with pytest.raises(weft.Cancelled):
                await anext(begun)
            await cancelling

    asyncio.run(run())
    assert 2 == len(server.servicer.seen)


def test_a_cancelled_task_leaves_its_pause(server):
    """As everywhere: asyncio.CancelledError."""
    server.servicer.script.append(LONG)

    async def run():
        async with weft.AsyncClient(server.target, wait=1e6, timeout=1e6) as client:
            task = asyncio.ensure_future(client.translate("a"))
            await until(lambda: 1 == len(server.servicer.seen))
            await asyncio.sleep(SOON_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())


def test_looks_at_models_wait_and_a_look_at_health_does_not(server, free_target):
    """Who asks how the server is wants to hear that it is away."""
    server.servicer.script.extend([FULL] * 2)
    with weft.Client(server.target, wait=60.0) as client:
        assert 2 == len(client.list_models())
    away = []

    def look():
        with pytest.raises(weft.Unavailable):
            client.health()
        away.append(True)

    with weft.Client(free_target, wait=1e6, timeout=1e6) as client:
        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        looking.join(60)
    assert [True] == away


@pytest.mark.parametrize("many", ["blocking", "in a loop"])
def test_many_inputs_wait_for_a_first_server(free_target, many):
    """With `wait`, though nobody has answered yet."""

    async def in_a_loop():
        async with weft.AsyncClient(free_target, wait=60.0) as client:
            return [answer.text async for answer in client.translate_many(["a", "b"]).or_raise()]

    def ask():
        if many == "in a loop":
            given.extend(asyncio.run(in_a_loop()))
            return
        with weft.Client(free_target, wait=60.0) as client:
            given.extend(answer.text for answer in client.translate_many(["a", "b"]).or_raise())

    given = []
    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(2)
    with fake_server(int(free_target.rpartition(":")[2]), host=EMPTY):
        asking.join(60)
    assert ["a", "b"] == given


def test_the_command_waits(server, capsys):
    """`--wait SECONDS`, also for models."""
    server.servicer.script.extend([FULL] * 2)
    assert 0 == running.run(["translate", "a b", "-t", server.target, "--wait", "60"])
    server.servicer.script.append(FULL)
    assert 0 == running.run(["models", "-t", server.target, "--wait", "60"])
    assert "b a" in capsys.readouterr().out
    assert 2 == running.run(["translate", "a b", "-t", server.target, "--wait", "-1"])
    assert "must be a number of seconds, 0 or more" in capsys.readouterr().err


@pytest.mark.parametrize("wait", [-1, True, "5", None, float("nan")])
def test_what_is_no_wait_is_refused(wait):
    """Seconds, and not whether."""
    with pytest.raises(weft.InvalidRequest, match="wait: must be a number of seconds, 0 or more"):
        weft.Client("localhost:7070", wait=wait)
