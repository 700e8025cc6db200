"""A client outside the event loop that it was made in, or in a fork of its process: a `weft.Error`, or an answer."""

import asyncio
import gc
import os
import subprocess
import sys

import pytest

import weft
from waiting import until


async def all_of(stream):
    """The texts of a stream, or of answers."""
    return [each if isinstance(each, str) else each.text async for each in stream]


async def at_once(call):
    """What a call that is no coroutine gives."""
    return call()


# By name: what is asked of a client, a stream, a stream that has begun, and the same of many inputs.
CALLS = {
    "call": lambda had: had["client"].translate("a"),
    "new stream": lambda had: all_of(had["client"].stream_generate("a b")),
    "new many": lambda had: all_of(had["client"].translate_many(["a", "b"])),
    "models": lambda had: had["client"].list_models(),
    "a model": lambda had: had["client"].get_model("en-es"),
    "health": lambda had: had["client"].health(),
    "wait": lambda had: had["client"].wait_until_ready(5),
    "close": lambda had: had["client"].close(),
    "stream": lambda had: all_of(had["stream"]),
    "begun stream": lambda had: all_of(had["begun stream"]),
    "many": lambda had: all_of(had["many"]),
    "begun many": lambda had: all_of(had["begun many"]),
    "admin": lambda had: had["admin"].unload_model("en-es", 1),
}


async def have(target):
    """A client, and what it began."""
    client = weft.AsyncClient(target, timeout=10.0)
    had = {
        "client": client,
        "admin": weft.AsyncAdminClient(target, timeout=10.0),
        "stream": client.stream_generate("a b c"),
        "begun stream": client.stream_generate("a b c"),
        "many": client.translate_many(["a", "b", "c"]),
        "begun many": client.translate_many(["a", "b", "c"]),
    }
    assert "c" == await anext(had["begun stream"])
    assert "a" == (await anext(had["begun many"])).text
    return had


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a loop is left with what it had
@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_another_loop_is_an_error_that_says_what_to_do(server, call, is_closed):
    """While the first loop is still there, and when it is closed."""
    loop = asyncio.new_event_loop()
    had = loop.run_until_complete(have(server.target))
    if is_closed:
        loop.close()

    async def ask(had):
        return await asyncio.wait_for(CALLS[call](had), 60)

    with pytest.raises(weft.Error, match="another event loop: make one inside each loop") as caught:
        asyncio.run(ask(had))
    assert "WRONG_LOOP" == caught.value.reason
    for name in ("stream", "begun stream", "many", "begun many"):
        had[name].cancel()  # which is no error
    if not is_closed:
        loop.run_until_complete(had["client"].close())
        loop.run_until_complete(had["admin"].close())
        loop.close()
    del had
    gc.collect()


def test_without_a_loop_a_stream_and_many_are_errors(server):
    """They need no `await` to begin, and so can be asked for where none runs."""
    loop = asyncio.new_event_loop()

    async def make():
        return weft.AsyncClient(server.target)

    client = loop.run_until_complete(make())
    for begin in (client.stream_generate, lambda text: client.translate_many([text])):
        with pytest.raises(weft.Error, match="another event loop"):
            begin("a")
    loop.run_until_complete(client.close())
    loop.close()


def test_a_stream_is_cancelled_from_another_thread(server):
    """The server hears of it, and the reader gets Cancelled."""
    server.servicer.script.append(60.0)

    async def run():
        async with weft.AsyncClient(server.target) as client:
            stream = client.stream_generate("a b")
            reader = asyncio.ensure_future(anext(stream))
            await until(lambda: server.servicer.seen)
            await asyncio.to_thread(stream.cancel)
            with pytest.raises(weft.Cancelled):
                await asyncio.wait_for(reader, 30)

    asyncio.run(run())
    assert server.servicer.seen[0].cancelled.wait(60)


FORKS = """
import os, sys, weft
target, what = sys.argv[1:]
client = weft.Client(target, timeout=20.0)
stream = client.stream_generate("a b c d")
many = client.translate_many(map(str, range(30)), concurrency=4)
next(stream), next(many)
CALLS = {
    "call": lambda: client.translate("a b").text,
    "new stream": lambda: list(client.stream_generate("a b")),
    "new many": lambda: len(list(client.translate_many(map(str, range(30))).or_raise())),
    "models": lambda: len(client.list_models()),
    "stream": lambda: list(stream),
    "many": lambda: list(many),
}
if not (child := os.fork()):
    try:
        print(CALLS[what](), flush=True)
    except weft.Error as error:
        print(error.reason, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(CALLS[what](), flush=True)
"""
IN_FORKS = {
    "call": ("b a", "b a"),
    "new stream": ("['b', ' a']", "['b', ' a']"),
    "new many": ("30", "30"),
    "models": ("2", "2"),
    "stream": ("FORKED", "[' c', ' b', ' a']"),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize("what", [*IN_FORKS, "many"])
def test_a_fork_connects_again(server, what):
    """In the child a client answers. What was begun before is an error there, and goes on in the parent."""
    asked = [sys.executable, "-c", FORKS, server.target, what]
    # As the README says: without it gRPC crashes one fork of forty.
    environment = os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "1"}
    run = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert 2 == len(run.stdout.splitlines()), run.stderr
    child, parent = run.stdout.splitlines()

    if what == "many":
        assert "FORKED" == child
        assert 29 == parent.count("Translation(")
    else:
        assert IN_FORKS[what] == (child, parent), run.stderr
