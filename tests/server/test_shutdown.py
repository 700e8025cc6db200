"""Signals that ask for the end, in a process of their own."""

import subprocess
import sys

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
