"""Signals that ask for the end, in a process of their own."""

import subprocess
import sys

import pytest

PROGRAM = """
import queue, signal, sys
from weft_server.process.shutdown import take_signals
asked = queue.Queue()
take_signals().serve(lambda: asked.put(None), 60, lambda what: print(what, flush=True))
for name in sys.argv[1:]:
    signal.raise_signal(signal.Signals[name])
    asked.get()  # for ever, if the process is ended instead
    print(name, flush=True)
signal.raise_signal(signal.SIGTERM)
asked.get()
"""


def _said(*names):
    """What is printed for these signals, each of which is taken before the next comes, and for a last SIGTERM."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True, check=False)
    assert 1 == done.returncode, done.stderr
    return done.stdout.splitlines()


def test_a_hangup_is_never_the_second_signal():
    """A shell and the kernel each send one when a terminal is closed; systemd sends one after SIGTERM. Calls finish."""
    second = "second signal, exiting now"
    assert ["SIGHUP", "SIGHUP", "SIGTERM", second] == _said("SIGHUP", "SIGHUP", "SIGTERM")
    assert ["SIGTERM", "SIGHUP", second] == _said("SIGTERM", "SIGHUP")
    assert ["SIGINT", second] == _said("SIGINT")


LOOP = """
import asyncio, os, signal, sys
import uvloop
from weft_server.process.shutdown import take_signals
stopping = take_signals()

async def serve():
    if "within" in sys.argv:
        signal.raise_signal(signal.SIGTERM)
    if "within" in sys.argv or "before" in sys.argv:
        await asyncio.sleep(60)  # nothing is served yet
    stopping.take_back()
    stopped = asyncio.Event()
    stopping.serve(lambda: loop.call_soon_threadsafe(stopped.set), 60, lambda *said: print(*said, flush=True))
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, signal.raise_signal, signal.SIGTERM)
    await stopped.wait()
    print("stopped", flush=True)
    if "later" in sys.argv:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(60)

if "before" in sys.argv:
    signal.raise_signal(signal.SIGTERM)
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(serve())
    while True:  # it begins once more to end what is left
        runner.get_loop().call_soon(signal.raise_signal, signal.SIGTERM)
        runner.run(asyncio.sleep(60))
"""


@pytest.mark.parametrize(
    ("when", "code", "said"),
    [
        ("before", 0, ""),
        ("within", 0, ""),
        ("later", 1, "stopped\nsecond signal, exiting now\n"),
        ("behind", 1, "stopped\nsecond signal, exiting now\n"),
    ],
)
def test_no_signal_is_lost_when_a_loop_begins(when, code, said):
    """The loop takes what C code writes of signals, and is asked for it back: each is one signal, at any time."""
    command = [sys.executable, "-c", LOOP, when]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (code, said) == (done.returncode, done.stdout), done.stderr
