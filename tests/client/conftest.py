"""A fake server for each test, and a client and a command that talk to it."""

import pytest

import weft
from fakes import fake_server
from weft_command import running


@pytest.fixture
def server():
    """A fake server on a free port."""
    with fake_server() as running:
        yield running


@pytest.fixture
def client(server):
    """A client of that server."""
    with weft.Client(server.target, timeout=10.0) as open_client:
        yield open_client


@pytest.fixture
def weft_command(server, monkeypatch, capsys):
    """Run `weft` in this process against the fake server; returns exit code, stdout and stderr."""
    monkeypatch.setenv("WEFT_TARGET", server.target)

    def run(*argv):
        code = running.run([str(each) for each in argv])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def picture(tmp_path):
    """A file of five bytes."""
    path = tmp_path / "picture.png"
    path.write_bytes(b"12345")
    return path
