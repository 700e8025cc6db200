"""The demo's server comes up, is found, and is gone afterwards, however the demo ends."""

import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "deploy/local/demo.py"
ENDS_WITHIN_S = 60

# The demo, to which a signal comes when it has just started its last process.
INTERRUPTED = """
import runpy, signal, subprocess, sys

class Popen(subprocess.Popen):
    num_started = 0

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        print(f"started {self.pid}", flush=True)
        Popen.num_started += 1
        if Popen.num_started == int(sys.argv[3]):
            signal.raise_signal(int(sys.argv[2]))

subprocess.Popen = Popen
sys.exit(runpy.run_path(sys.argv[1])["main"](["sleep", "600"]))
"""

pytestmark = pytest.mark.e2e


def demo(*command, **options):
    """Start the demo with a command of ours in place of the tour."""
    return subprocess.Popen([sys.executable, DEMO, *command], stdout=subprocess.PIPE, text=True, **options)


def listens(target):
    """Whether somebody accepts connections there."""
    host, port = target.split(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def first_target(process):
    """The target that the command printed, once it runs."""
    for line in process.stdout:
        if found := re.search(r"127\.0\.0\.1:\d+", line):
            return found[0]
    raise AssertionError("The demo ended before its command ran.")


def wait_for_tour(pid):
    """Return once the demo's tour has loaded gRPC's library, and is at its other imports."""
    give_up = time.monotonic() + ENDS_WITHIN_S
    while time.monotonic() < give_up:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(FileNotFoundError):
                tour = "tour.py" in Path(f"/proc/{child}/cmdline").read_text()
                if tour and "cygrpc" in Path(f"/proc/{child}/maps").read_text():
                    return
        time.sleep(0.01)
    raise AssertionError("no tour began")


def test_a_command_finds_a_ready_server_which_then_is_gone():
    """The command runs against a listening server, its status is the demo's, and the port is closed afterwards."""
    connect = (
        "import os, socket; host, port = os.environ['WEFT_TARGET'].split(':'); socket.create_connection((host, port))"
    )
    with demo("sh", "-c", f'"{sys.executable}" -c "{connect}" && echo $WEFT_TARGET && exit 7') as process:
        target = first_target(process)
        status = process.wait(ENDS_WITHIN_S)

    assert 7 == status
    assert not listens(target)


def test_the_tour_ends_with_what_to_do_next():
    """All requests are answered, and the last lines say how to go on."""
    with demo() as process:
        said = process.stdout.read()

    assert 0 == process.returncode
    assert 8 == len(re.findall(r"^ +-> ", said, re.MULTILINE))
    assert "make serve" in said.splitlines()[-3]
    assert said.splitlines()[-1].startswith("  .venv/bin/weft translate ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_demo_leaves_nothing_running(number):
    """Ctrl-C in the terminal and a plain kill stop the command and the server."""
    with demo("sh", "-c", "echo $WEFT_TARGET; exec sleep 600", start_new_session=True) as process:
        target = first_target(process)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does: to the whole foreground group
        else:
            process.send_signal(number)
        status = process.wait(ENDS_WITHIN_S)

    assert 128 + number == status
    assert not listens(target)


def test_an_interrupted_tour_shows_no_traceback():
    """Ctrl-C while the tour still imports what it needs ends it without a word."""
    with demo(stderr=subprocess.PIPE, start_new_session=True) as process:
        wait_for_tour(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()

    assert (128 + signal.SIGINT, "") == (process.returncode, said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("last", [1, 2], ids=["server", "command"])
def test_an_interrupt_while_a_process_starts_leaves_nothing_running(number, last):
    """What was started when the signal came is ended too: the server, and the command as well."""
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, DEMO, str(int(number)), str(last)], stdout=subprocess.PIPE, text=True
    ) as process:
        started = re.findall(r"^started (\d+)$", process.stdout.read(), re.MULTILINE)

    assert 128 + number == process.returncode
    assert last == len(started)
    assert [] == [pid for pid in started if Path(f"/proc/{pid}").exists()]


def test_a_server_that_fails_is_explained(tmp_path):
    """A repository that cannot be served ends the wait at once, with the end of the server's log."""
    served = runpy.run_path(str(DEMO))["served"]
    began = time.monotonic()

    with pytest.raises(Exception, match=r"The server ended with status [1-9](.|\n)*nowhere"):
        served(tmp_path / "nowhere", tmp_path / "server.log").__enter__()

    assert time.monotonic() - began < ENDS_WITHIN_S


def test_a_server_that_takes_too_long_is_explained(tmp_path):
    """Who serves says for how long to wait. What is said then names that time, and the end of the log."""
    (tmp_path / "models").mkdir()

    with pytest.raises(Exception, match=r"The server was not ready after 0 s\. (.|\n)*server\.log"):
        runpy.run_path(str(DEMO))["served"](tmp_path / "models", tmp_path / "server.log", 0.0).__enter__()
