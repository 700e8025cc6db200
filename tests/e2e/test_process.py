"""The server as a process: its log is not read, it is told to end at any moment, and something in it stands still."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import h2.connection
import h2.events
import pytest

import weft
from process import PATIENCE_S, ServerProcess

pytestmark = pytest.mark.e2e


@pytest.fixture
def repository(tiny_repository, tmp_path):
    """One tiny model."""
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "tiny-text").symlink_to(tiny_repository / "tiny-text")
    return tmp_path / "repository"


def _until(condition, what):
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.01)


def _status(pid, name):
    """A line of what Linux knows of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))


def _has(pid, mask, number):
    return bool(int(_status(pid, mask), 16) >> (number - 1) & 1)


def _free_ports():
    """Two ports that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


@contextmanager
def _unread(kind):
    """What a server may write its log to, with a reader who does not read: there is no room for one byte more."""
    reader, writer = os.openpty() if kind == "terminal" else os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_NONBLOCK)
    for size in (1024, 1):
        try:
            while True:
                os.write(writer, b"x" * size)
        except BlockingIOError:
            pass
    fcntl.fcntl(writer, fcntl.F_SETFL, 0)
    try:
        yield writer
    finally:
        os.close(reader)
        os.close(writer)


def _get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.read().decode()
    except OSError:
        return ""


class Patched(ServerProcess):
    """A server in which something else happens: Python that runs before it starts."""

    def __init__(self, repository, patch, **settings):
        start = "from weft_server.process.shutdown import take_signals; take_signals()"
        start += "; from weft_server.cli.serve import app"
        self.program = ("-c", f"{start}\n{SAY}\n{patch}\napp()")
        super().__init__(repository, **settings)


@pytest.mark.parametrize("kind", ["terminal", "pipe"])
def test_nobody_waits_for_who_reads_the_log(repository, kind):
    """It becomes ready, answers and ends by SIGTERM, as if the log were read. What does not fit is counted."""
    port, http_port = _free_ports()
    settings = ["--port", str(port), "--http-port", str(http_port), "--log-level", "debug"]
    command = [sys.executable, "-m", "weft_server", str(repository), *settings]
    with _unread(kind) as writer, subprocess.Popen(command, stdout=writer, stderr=writer) as process:
        try:
            _until(lambda: "ok\n" == _get(http_port, "/readyz"), "ready")
            with weft.Client(f"localhost:{port}", timeout=PATIENCE_S) as client:
                assert client.classify("w1 w2").labels
            assert "weft_log_events_dropped_total 0" in _get(http_port, "/metrics")
            assert os.get_blocking(writer)  # for others it is as it was
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(PATIENCE_S)
        finally:
            process.kill()


def test_what_is_ignored_at_the_start_stays_ignored(repository):
    """As by nohup, and for background jobs of a shell: SIGHUP and SIGINT end nothing, and SIGTERM does."""
    port, http_port = _free_ports()
    serve = [sys.executable, "-m", "weft_server", str(repository), "--port", str(port), "--http-port", str(http_port)]
    command = ["sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh", *serve]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            _until(lambda: "ok\n" == _get(http_port, "/readyz"), "ready")
            ignored = [_has(process.pid, "SigIgn", number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)]
            assert [True, True, False] == ignored
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGINT)
            with weft.Client(f"localhost:{port}", timeout=PATIENCE_S) as client:
                assert client.classify("w1 w2").labels
            assert "ok\n" == _get(http_port, "/readyz")
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(PATIENCE_S)
        finally:
            process.kill()


def _is_process_1_possible():
    return 0 == subprocess.run(["unshare", "-p", "-f", "true"], stderr=subprocess.DEVNULL, check=False).returncode


STAGES = {
    "first": lambda pid: _has(pid, "SigCgt", signal.SIGTERM),
    "imports": lambda pid: int(_status(pid, "Threads")) > 1,
    "listens": lambda pid: int(_status(pid, "Threads")) > 4,
}


@pytest.mark.skipif(not sys.platform.startswith("linux") or not _is_process_1_possible(), reason="needs namespaces")
@pytest.mark.parametrize("stage", STAGES)
def test_process_1_ends_by_sigterm_from_the_first_moment(repository, stage):
    """Linux drops a signal that process 1 has no handler for. It has one before it imports what takes long."""
    serve = [sys.executable, "-m", "weft_command", "serve", str(repository), "--port", "0", "--http-port", "0"]
    with subprocess.Popen(["unshare", "-p", "-f", "--kill-child", *serve], stderr=subprocess.DEVNULL) as outer:
        try:
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
            _until(children.read_text, "a child")
            inner = int(children.read_text())
            _until(lambda: STAGES[stage](inner), stage)
            os.kill(inner, signal.SIGTERM)
            assert 0 == outer.wait(PATIENCE_S)
        finally:
            outer.kill()


# Held where it imports what takes long.
HELD = """
import runpy, sys, time
class Held:
    def find_spec(self, name, *_):
        if name in {"weft.cli", "weft_server.cli.serve"}:
            time.sleep(3600)
sys.meta_path.insert(0, Held())
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["weft_command", "serve", "models"], 0),
        (["weft_server", "models"], 0),
        (["weft_command", "serve", "--check", "models"], 143),
        (["weft_command", "health"], 143),
    ],
)
def test_a_command_that_is_ended_while_it_begins_says_so(words, code):
    """A server that had nothing to finish ended well. Any other command was cut off."""
    with subprocess.Popen([sys.executable, "-c", HELD, *words], stderr=subprocess.DEVNULL) as process:
        try:
            _until(lambda: _has(process.pid, "SigCgt", signal.SIGTERM), "a handler")
            process.send_signal(signal.SIGTERM)
            assert code == process.wait(PATIENCE_S)
        finally:
            process.kill()


# A drain that does not go on: the event loop sleeps, or somebody keeps the interpreter, and no Python runs.
STUCK = {
    "loop": "import time\ndef stuck(): time.sleep(3600)",
    "lock": "import threading\ndef stuck(): threading.Lock().acquire() and threading.Event().wait()",
    "interpreter": "import ctypes\ndef stuck(): ctypes.PyDLL(None).sleep(3600)",
}
# What a server tells this test, in one write: a thread writes the log to the same pipe.
SAY = """
import os
def say(what):
    os.write(1, f"{what}\\n".encode())
"""
DRAIN = """
from weft_server import app as module
from weft_server.process import shutdown
async def drain(self):
    say("stuck")
    stuck()
module.App._drain = drain
"""


@pytest.mark.parametrize("kind", STUCK)
def test_a_server_that_cannot_drain_is_ended(repository, kind):
    """Whatever stands still, it ends after the time for a drain and a margin, with code 1, and says why."""
    patch = f"{STUCK[kind]}\n{DRAIN}\nshutdown.MARGIN_S = shutdown._C_MARGIN_S = 1"
    with Patched(repository, patch, drain_timeout_s=0) as server:
        server.wait_for("ready", PATIENCE_S)
        server.process.send_signal(signal.SIGTERM)
        assert 1 == server.process.wait(PATIENCE_S)
    said = [event["event"] for event in server.log]
    if kind == "interpreter":
        assert any(line.startswith("Timeout") for line in said), said  # and then where each thread was
    else:
        (why,) = [event for event in server.log if event["event"] == "not ended in time, exiting now"]
        assert "in stuck" in why["stack"]


def test_a_second_signal_ends_a_server_whose_loop_stands_still(repository):
    """It needs no event loop. The exit code is 1."""
    with Patched(repository, f"{STUCK['loop']}\n{DRAIN}") as server:
        server.wait_for("ready", PATIENCE_S)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("stuck", PATIENCE_S)
        server.process.send_signal(signal.SIGINT)
        assert 1 == server.process.wait(PATIENCE_S)
        assert server.wait_for("second signal, exiting now")


def test_a_server_that_cannot_drain_is_ended_though_nobody_reads_its_log(repository):
    """Also where the interpreter is kept, so that the last word is C code's."""
    mark = repository.parent / "mark"
    drain = DRAIN.replace('say("stuck")', f"open({str(mark)!r}, 'w').close()")
    patch = f"{STUCK['interpreter']}\n{drain}\nshutdown.MARGIN_S = shutdown._C_MARGIN_S = 1"
    program = f"from weft_server.cli.serve import app\n{patch}\napp()"
    http_port = _free_ports()[1]
    settings = ["--port", "0", "--http-port", str(http_port), "--drain-timeout-s", "0"]
    command = [sys.executable, "-c", program, str(repository), *settings]
    with _unread("pipe") as writer, subprocess.Popen(command, stdout=writer, stderr=writer) as process:
        try:
            _until(lambda: "ok\n" == _get(http_port, "/readyz"), "ready")
            process.send_signal(signal.SIGTERM)
            assert 1 == process.wait(PATIENCE_S)
        finally:
            process.kill()
    assert mark.exists()


def test_a_background_task_that_ends_begins_again(repository):
    """The supervision of lanes raises, once. The log says so, and after that lanes are supervised again."""
    patch = """
from weft_server.lifecycle.watchdog import Watchdog
beat, beats = Watchdog.beat, []
async def broken(self):
    beats.append(1)
    if len(beats) == 1:
        raise RuntimeError("broken")
    say("again")
    await beat(self)
Watchdog.beat = broken
"""
    with Patched(repository, patch) as server:
        ended = server.wait_for("background task ended", PATIENCE_S)
        assert ("pulse", "RuntimeError") == (ended["task"], ended["exception"][0]["exc_type"])
        server.wait_for("again", PATIENCE_S)
        server.wait_until(lambda: 200 == server.get("/readyz")[0], PATIENCE_S)
        assert 0 == server.terminate()


def test_a_pulse_that_has_ended_is_said_to_be_what_it_is(repository):
    """`/livez` and `/readyz` say that lanes are not supervised, and not that the event loop is stuck. So does gRPC."""
    patch = """
from weft_server.process import background_tasks as background
from weft_server.lifecycle.watchdog import Watchdog
async def broken(self):
    raise RuntimeError("broken")
Watchdog.beat, background.PAUSE_S = broken, 3600
"""
    with Patched(repository, patch) as server:
        server.wait_for("background task ended", PATIENCE_S)
        why = "lanes are not supervised: RuntimeError: broken\n"
        assert [(503, why)] * 2 == [server.get("/livez"), server.get("/readyz")]
        with weft.Client(server.target, timeout=PATIENCE_S) as client:
            server.wait_until(lambda: client.health("live") is weft.Health.NOT_SERVING, PATIENCE_S)
            assert weft.Health.NOT_SERVING is client.health()
        assert 0 == server.terminate()


def test_a_server_whose_loading_fails_by_a_bug_ends_by_itself(repository):
    """Nobody would load what is left. It drains, says why, and the exit code is 1."""
    patch = """
from weft_server import app as module
async def broken(self):
    raise OSError("broken")
module.App._settle_memory = broken
"""
    with Patched(repository, patch) as server:
        assert 1 == server.process.wait(PATIENCE_S)
    assert any(event["event"] == "draining" for event in server.log)
    (why,) = [event["why"] for event in server.log if event["event"] == "stopped after a failure"]
    assert "load failed: " in why
    assert "broken" in why


def test_a_bug_in_the_supervision_of_one_model_leaves_others_supervised(tiny_repository, tmp_path):
    """The log has it once. A lane of the other model that hangs is replaced."""
    repository = tmp_path / "repository"
    repository.mkdir()
    for name in ("tiny-text", "tiny-translate"):
        (repository / name).symlink_to(tiny_repository / name)
    patch = """
from weft_server.models.model import Model
supervise = Model.supervise
def broken(self, timeout_s):
    if self.name == "tiny-text":
        raise RuntimeError("broken")
    supervise(self, timeout_s)
    say("supervised")
Model.supervise = broken
"""
    with Patched(repository, patch) as server:
        server.wait_for("ready", PATIENCE_S)
        server.wait_until(lambda: sum(each["event"] == "supervised" for each in server.log) > 2, PATIENCE_S)
        # A thread writes the log: what was printed since may stand before it.
        server.wait_for("supervision failed", PATIENCE_S)
        failed = [event for event in server.log if event["event"] == "supervision failed"]
        assert ["tiny-text"] == [event["model"] for event in failed]
        assert 0 == server.terminate()


def test_a_signal_that_came_before_the_handler_is_not_lost(repository):
    """`weft up` blocks SIGTERM until the server that takes its place has a handler."""
    program = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
os.execv(sys.executable, [sys.executable, "-m", "weft_command", *sys.argv[1:]])
"""
    command = [sys.executable, "-c", program, "serve", str(repository)]
    ended = subprocess.run(command, stderr=subprocess.DEVNULL, timeout=PATIENCE_S, check=False)
    assert 0 == ended.returncode


@pytest.mark.parametrize("program", [("-m", "weft_server"), ("-m", "weft_command", "serve")])
def test_a_stranger_writes_no_line_into_the_log(repository, program):
    """Of gRPC in C: it would say one for each timeout that is none, past our format and past our bound."""

    class Served(ServerProcess):
        pass

    Served.program = program
    with Served(repository) as server:
        server.wait_for("ready", PATIENCE_S)
        host, _, port = server.target.rpartition(":")
        connection = h2.connection.H2Connection()
        connection.initiate_connection()
        headers = {":method": "POST", ":path": "/grpc.health.v1.Health/Check", ":scheme": "http", ":authority": "x"}
        more = {"content-type": "application/grpc", "te": "trailers", "grpc-timeout": "abc"}
        connection.send_headers(1, [*headers.items(), *more.items()], end_stream=True)
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as stranger:
            stranger.sendall(connection.data_to_send())
            ended = False
            while not ended:
                events = connection.receive_data(stranger.recv(65536))
                kinds = (h2.events.StreamEnded, h2.events.StreamReset, h2.events.ConnectionTerminated)
                ended = any(isinstance(event, kinds) for event in events)
        assert 0 == server.terminate()
    assert all("level" in event for event in server.log), server.log


def test_what_models_need_is_no_garbage_to_look_for(repository):
    """When a server is ready, a search goes through a hundredth of its objects: no request waits for the others."""
    patch = """
import gc
from weft_server import app as module
settle = module.App._settle_memory
async def settled(self):
    await settle(self)
    say(f"searched {len(gc.get_objects())} of {gc.get_freeze_count()}")
module.App._settle_memory = settled
"""
    with Patched(repository, patch) as server:
        server.wait_for("ready", PATIENCE_S)
        # A thread writes the log: what was printed before may stand behind it.
        server.wait_until(lambda: any(each["event"].startswith("searched ") for each in server.log), PATIENCE_S)
        (said,) = [each["event"] for each in server.log if each["event"].startswith("searched ")]
    searched, kept = map(int, said.removeprefix("searched ").split(" of "))
    assert 100 * searched < kept
