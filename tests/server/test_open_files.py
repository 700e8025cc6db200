"""There are files enough for all connections, and for the server itself, or there is no start."""

import resource
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from process import ServerProcess
from weft_server.checks import open_files
from weft_server.checks.finding import ERROR, OK
from weft_server.checks.open_files import RESERVED, look_at_open_files, raise_limit
from weft_server.config import read_config

ENDLESS = resource.RLIM_INFINITY


@pytest.fixture
def limits(monkeypatch):
    """The limits of a process, which a test may set: [soft, hard]."""
    now = [1024, 4096]
    monkeypatch.setattr(open_files.resource, "getrlimit", lambda _: tuple(now))
    monkeypatch.setattr(open_files.resource, "setrlimit", lambda _, new: now.__setitem__(slice(None), new))
    return now


@pytest.mark.parametrize(
    ("most", "settings", "state"),
    [
        (1000 + RESERVED, {}, OK),
        (1000 + RESERVED - 1, {}, ERROR),
        (2000 + RESERVED - 1, {"admin": True}, ERROR),
        (2000 + RESERVED, {"admin": True}, OK),
        (ENDLESS, {"max_connections": 1_000_000}, OK),
    ],
)
def test_as_many_files_as_all_ports_have_connections(limits, most, settings, state):
    """And some for the server itself. What this process may have without root counts: it takes that at the start."""
    limits[1] = most
    (finding,) = look_at_open_files(read_config(repository="m", **settings))
    assert state == finding.state
    if state == ERROR:
        fewer = (most - RESERVED) // (2 if "admin" in settings else 1)
        assert f"--max-connections (WEFT_MAX_CONNECTIONS): 1000 need {most + 1} open files" in finding.line
        assert f"give {fewer} or fewer" in finding.line
        fits = read_config(repository="m", max_connections=fewer, **settings)
        assert [OK] == [each.state for each in look_at_open_files(fits)]


def test_too_few_for_any_connection(limits):
    """No number of connections is proposed then."""
    limits[1] = RESERVED
    (finding,) = look_at_open_files(read_config(repository="m", max_connections=1))
    assert (ERROR, False) == (finding.state, "or fewer" in finding.line)


@pytest.mark.parametrize(
    ("soft", "hard", "then"),
    [(1024, 4096, 1256), (1024, 1100, 1100), (2000, 4096, 2000), (1024, ENDLESS, 1256), (ENDLESS, ENDLESS, ENDLESS)],
)
def test_a_start_raises_the_limit_as_far_as_it_needs(limits, soft, hard, then):
    """And never lowers it."""
    limits[:] = soft, hard
    raise_limit(read_config(repository="m"))
    assert [then, hard] == limits


@pytest.mark.e2e
@pytest.mark.parametrize("flags", [["--check"], []])
def test_a_start_with_too_few_is_refused(tmp_path, flags):
    """By the check and by the start alike, in a line."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    command = [sys.executable, "-m", "weft_server", str(tmp_path), "--port=0", "--http-port=0", *flags]
    limited = ["sh", "-c", 'ulimit -n 600; exec "$@"', "sh", *command]
    ended = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=60)
    assert 1 == ended.returncode
    assert "--max-connections (WEFT_MAX_CONNECTIONS): 1000 need 1256 open files" in ended.stderr


class _Limited(ServerProcess):
    """A server that may have few files open, and of these half at first."""

    def __init__(self, repository, most, **settings):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most // 2, before[1]))
        try:
            super().__init__(repository, **settings)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (most // 2, most))


@pytest.mark.e2e
def test_probes_are_answered_when_all_connections_are_taken(tmp_path):
    """Whoever takes all that gRPC gives, and tries to take more, leaves the server its own."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    most = 100 + RESERVED
    with _Limited(tmp_path, most, max_connections=100) as server, ExitStack() as taken:
        assert (most, most) == resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        host, _, port = server.target.rpartition(":")
        for _ in range(3 * most):
            taken.enter_context(socket.create_connection((host, int(port)), timeout=10))
        for _ in range(80):
            assert 200 == server.get("/livez")[0]
