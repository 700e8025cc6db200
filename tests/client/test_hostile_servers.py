"""Whoever answers: a call gives an answer or a `weft.Error`, in time, and the process lives."""

import asyncio
import os
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

import weft
from hostile_servers import (
    answering,
    close_behind_settings,
    framed,
    go_away,
    message,
    reset,
    served,
    settings_alone,
    status_of_http,
    until_closed,
)


def garbage(connection):
    """No protocol at all."""
    connection.sendall(bytes(range(256)) * 40)
    until_closed(connection)


def old_http(connection):
    """A web server of another age."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n")


def huge(wire, stream):
    """Announce 2 GiB, and begin."""
    wire.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
    wire.send_data(stream, b"\0\x7f\xff\xff\xff" + bytes(100))


@cache
def packed():
    """256 MiB of zeros in 256 KiB, made when somebody asks: that takes a second."""
    return framed(zlib.compress(bytes(1 << 28), 9), compressed=True)


def bomb(connection):
    """Answer each call with what is a thousand times as large when it is unpacked."""
    message(packed(), encoding="deflate")(connection)


BAD_DETAILS = (("grpc-status", "3"), ("grpc-status-details-bin", "!!!!"))
SERVERS = {
    "silence": (until_closed, weft.DeadlineExceeded),
    "garbage": (garbage, weft.Unavailable),
    "HTTP/1.1": (old_http, weft.Unavailable),
    "hangs up": (lambda connection: None, weft.Unavailable),
    "settings and silence": (settings_alone, weft.DeadlineExceeded),
    "resets: REFUSED_STREAM": (reset(7), (weft.Overloaded, weft.DeadlineExceeded)),
    "resets: CANCEL": (reset(8), weft.Cancelled),
    "resets: INTERNAL_ERROR": (reset(2), weft.Unavailable),
    "resets the watch too": (answering(lambda wire, stream: wire.reset_stream(stream, 7), watch=False), weft.Error),
    "goes away": (go_away(0), weft.Unavailable),
    "goes away: ENHANCE_YOUR_CALM": (go_away(11), weft.Unavailable),
    "404": (status_of_http("404"), weft.Unsupported),
    "302": (status_of_http("302"), weft.InternalError),
    "503": (status_of_http("503"), weft.Unavailable),
    "no trailers": (message(framed(b""), trailers=None), weft.DeadlineExceeded),
    "cut": (message(b"\0\0\0\0\x09abc"), weft.InternalError),
    "unreadable": (message(framed(b"\xff\xff\xff")), weft.InternalError),
    "no UTF-8": (message(framed(b"\x0a\x04\x0a\x02\xff\xfe")), weft.InternalError),
    "an unknown compression": (message(framed(b"abc", compressed=True), encoding="zstd"), weft.InternalError),
    "compressed without a word": (message(framed(b"abc", compressed=True)), weft.InternalError),
    "a status beyond": (message(framed(b""), trailers=(("grpc-status", "99"),)), weft.InternalError),
    "a status in words": (message(framed(b""), trailers=(("grpc-status", "ok"),)), weft.InternalError),
    "broken details": (message(framed(b""), trailers=BAD_DETAILS), weft.Error),
    "2 GiB announced": (answering(huge), weft.InvalidRequest),
    "a bomb": (bomb, weft.Error),
}
# What is asked again until a call's time is over, or has no answer at all.
SHORT_S = {
    "silence": 1.0,
    "settings and silence": 1.0,
    "no trailers": 1.0,
    "resets: REFUSED_STREAM": 5.0,
    "resets the watch too": 5.0,
}
# A call that hangs takes for ever, and a machine may be busy.
GRACE_S = 60.0


def raised(call):
    """What a call raised, or gave in the place of an answer."""
    try:
        given = call()
    except Exception as error:  # noqa: BLE001 - each kind is of interest
        return error
    return given


def blocking(target, timeout_s):
    """What comes of a call, a stream, many and a look at the models, in threads."""
    with weft.Client(target, timeout=timeout_s) as client:
        calls = {
            "call": lambda: client.translate("a"),
            "stream": lambda: list(client.stream_generate("a")),
            "many": lambda: next(client.translate_many(["a"])),
            "models": client.list_models,
        }
        outcomes = {}
        threads = [
            threading.Thread(target=lambda name=name, call=call: outcomes.update({name: raised(call)}), daemon=True)
            for name, call in calls.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout_s + GRACE_S)
        return outcomes


def in_a_loop(target, timeout_s):
    """The same by asyncio."""

    async def read(stream):
        return [piece async for piece in stream]

    async def run():
        async with weft.AsyncClient(target, timeout=timeout_s) as client:
            calls = {
                "call": client.translate("a"),
                "stream": read(client.stream_generate("a")),
                "many": anext(client.translate_many(["a"])),
                "models": client.list_models(),
            }
            given = asyncio.gather(*calls.values(), return_exceptions=True)
            return dict(zip(calls, await asyncio.wait_for(given, timeout_s + GRACE_S), strict=True))

    return asyncio.run(run())


def asked(ask, server):
    """What comes of asking one of SERVERS."""
    with served(SERVERS[server][0]) as target:
        return ask(target, SHORT_S.get(server, 60.0))


@pytest.fixture(scope="module")
def all_asked():
    """Whoever asks each server, all at once: most of the time, a client waits before it asks again."""
    with ThreadPoolExecutor(len(SERVERS) * 2) as pool:
        yield {(ask, server): pool.submit(asked, ask, server) for ask in (blocking, in_a_loop) for server in SERVERS}


@pytest.mark.parametrize("ask", [blocking, in_a_loop])
@pytest.mark.parametrize("server", SERVERS)
def test_each_answer_that_is_none_is_an_error_in_time(all_asked, server, ask):
    """Nothing of gRPC, of protobuf or of Python comes through, and nothing hangs."""
    outcomes, kind = all_asked[ask, server].result(), SERVERS[server][1]

    assert {"call", "stream", "many", "models"} == set(outcomes)
    assert dict.fromkeys(outcomes, True) == {name: isinstance(each, kind) for name, each in outcomes.items()}, outcomes


CRASHES = """
import sys, weft
from contextlib import suppress
target, = sys.argv[1:]
with weft.Client(target, timeout=4.0) as client, weft.Client(target, timeout=4.0) as other:
    for call in (lambda: client.translate("a"), lambda: other.translate("a"), client.list_models):
        with suppress(weft.Error):
            call()
print("alive")
"""


def test_connections_that_end_at_once_do_not_end_the_process():
    """A server says SETTINGS and hangs up, as one that is killed: two clients get errors, and live on."""
    with served(close_behind_settings) as target:
        command = [sys.executable, "-c", CRASHES, target]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=dict(os.environ))

    assert (0, "alive\n") == (run.returncode, run.stdout), run.stderr


def test_a_bomb_is_refused_while_it_is_unpacked():
    """256 MiB of zeros in 256 KiB: an answer may have 64 MiB."""
    with (
        served(bomb) as target,
        weft.Client(target) as client,
        pytest.raises(weft.InvalidRequest, match="larger than max") as caught,
    ):
        client.translate("a")

    assert "MESSAGE_TOO_LARGE" == caught.value.reason
