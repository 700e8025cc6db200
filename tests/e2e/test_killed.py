"""A server that is killed and comes back on its port: whoever waits for it loses no answer."""

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import weft
from envoy import free_port
from process import ServerProcess
from waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SENTENCES = ["we are eating bread", "the old women are not buying cheap apples", "the cat eats"]
NUM_MANY = 500
TEXTS = [f"{SENTENCES[number % 3]}{' and' * (number % 7)}" for number in range(NUM_MANY)]


@pytest.fixture(scope="module")
def repository(demo_repository, tmp_path_factory):
    """The translator alone: each test starts servers."""
    folder = tmp_path_factory.mktemp("translator")
    (folder / "en-es").symlink_to(demo_repository / "en-es")
    return folder


@pytest.fixture(scope="module")
def answers(repository):
    """By text the answer that a server gives which nobody kills."""
    with running(repository, free_port()) as server, weft.Client(server.target) as client:
        return {text: client.translate(text).text for text in set(TEXTS)}


@contextmanager
def running(repository, port):
    """A server that is ready."""
    with ServerProcess(repository, port=port, slots=4) as server:
        server.wait_for("ready")
        yield server


def killed_in_the_middle(repository, port, ask):
    """What `ask(target, answered)` gives, if the server is killed once it has called `answered`, and comes back."""
    found, answered = [], threading.Event()
    with running(repository, port) as server:
        asking = threading.Thread(target=lambda: found.extend(ask(server.target, answered)), daemon=True)
        asking.start()
        assert answered.wait(60)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    with running(repository, port):
        asking.join(120)
        assert not asking.is_alive()
    return found


def many(target, answered):
    """All texts, by the blocking client."""
    with weft.Client(target) as client:
        for number, answer in enumerate(client.translate_many(TEXTS, concurrency=16)):
            if number == 20:
                answered.set()
            yield answer


def many_async(target, answered):
    """All texts, by asyncio."""

    async def run():
        found = []
        async with weft.AsyncClient(target) as client:
            async for answer in client.translate_many(TEXTS, concurrency=16):
                found.append(answer)
                if len(found) == 20:
                    answered.set()
        return found

    return asyncio.run(run())


def many_from_the_first_call(target, answered):
    """All texts, of which the first ones are in flight when it happens. An answer of another verb came before."""
    with weft.Client(target) as client:
        client.tokenize("a", model="en-es")
        threading.Timer(0.05, answered.set).start()
        yield from client.translate_many(TEXTS, concurrency=64)


@pytest.mark.parametrize("ask", [many, many_async, many_from_the_first_call])
def test_many_inputs_outlast_a_killed_server(repository, answers, ask):
    """Each has its answer, in its place, whoever asks."""
    found = killed_in_the_middle(repository, free_port(), ask)

    assert [answers[text] for text in TEXTS] == [
        str(each) if isinstance(each, weft.Error) else each.text for each in found
    ]


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_second_time_remembers_that_there_was_a_server(repository, answers, kind):
    """What one client asks while the server is away waits, if the client has had an answer before."""

    async def again_async(target, asked, found):
        async with weft.AsyncClient(target) as client:
            found += [answer async for answer in client.translate_many(TEXTS[:3])]
            await until(asked.is_set)
            found += [answer async for answer in client.translate_many(TEXTS[3:40])]

    def again(target, asked, found):
        with weft.Client(target) as client:
            found += client.translate_many(TEXTS[:3])
            assert asked.wait(60)
            found += client.translate_many(TEXTS[3:40])

    def ask(*given):
        if kind == "blocking":
            again(*given)
        else:
            asyncio.run(again_async(*given))

    found, gone, port = [], threading.Event(), free_port()
    with running(repository, port) as server:
        asking = threading.Thread(target=ask, args=(server.target, gone, found), daemon=True)
        asking.start()
        asyncio.run(until(lambda: len(found) == 3, 60))
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        gone.set()
    asking.join(4)  # in which nobody is there
    with running(repository, port):
        asking.join(120)

    assert [answers[text] for text in TEXTS[:40]] == [
        str(each) if isinstance(each, weft.Error) else each.text for each in found
    ]


def read(stream):
    """The text, or None where it broke off behind its beginning, which is the caller's to judge."""
    pieces = []
    try:
        for piece in stream:
            pieces.append(piece)  # noqa: PERF402 - what had come is of interest
    except weft.Unavailable:
        if not pieces:
            raise
        return None
    return "".join(pieces)


def calls_and_streams(target, answered):
    """(text, its answer or the error) of 200 calls, every other one a stream, by eight callers."""
    found = []
    with weft.Client(target, wait=60.0) as client:

        def ask_in_turn(number):
            for text in TEXTS[number:200:8]:
                try:
                    given = read(client.stream_translate(text)) if number % 2 else client.translate(text).text
                except weft.Error as error:
                    given = error
                found.append((text, given))
                if len(found) == 40:
                    answered.set()

        with ThreadPoolExecutor(8) as callers:
            list(callers.map(ask_in_turn, range(8)))
    return found


def test_calls_and_streams_that_wait_outlast_a_killed_server(repository, answers):
    """With `wait`, eight callers lose no call, and no stream that had not begun."""
    found = killed_in_the_middle(repository, free_port(), calls_and_streams)

    assert 200 == len(found)
    assert [] == [(text, given) for text, given in found if given not in (None, answers[text])]


def test_streams_end_with_their_server(repository):
    """Each of eight that are read when it is killed is an error at once, and hangs beyond no deadline."""
    ends, read_some = [], threading.Event()
    with running(repository, free_port()) as server, weft.Client(server.target, timeout=30.0) as client:

        def read_on():
            for number in range(10**6):
                try:
                    for _ in client.stream_translate(TEXTS[6]):
                        pass
                except weft.Unavailable as error:
                    ends.append(error)
                    return
                if number == 5:
                    read_some.set()

        threads = [threading.Thread(target=read_on, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert read_some.wait(60)
        server.process.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join(60)

    assert 8 == len(ends)
