"""What a real server tells systemd, at a real datagram socket."""

import signal
import socket

import pytest

from process import ServerProcess

pytestmark = pytest.mark.e2e


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A socket that hears what systemd would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(120)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield manager


def hear(manager, wanted):
    """What is heard until a message has a state."""
    heard = []
    while not heard or wanted not in heard[-1]:
        heard.append(manager.recv(4096).decode().split("\n"))
    return heard


def test_systemd_hears_how_the_server_is(demo_repository, tmp_path, manager):
    """Once that it is ready, each second that it moves, and that it stops. A refused bundle is told, and no more."""
    models = tmp_path / "models"
    (models / "broken" / "1").mkdir(parents=True)
    (models / "broken" / "1" / "bundle.json").write_text("{}")
    (models / "topics").symlink_to(demo_repository / "topics")
    with ServerProcess(models) as server:
        *before, (*_, ready, status) = hear(manager, "READY=1")
        assert "READY=1" == ready
        assert status.startswith("STATUS=model broken version 1: ")
        assert [["WATCHDOG=1"]] * len(before) == before
        assert ["WATCHDOG=1", ready, status] == hear(manager, "WATCHDOG=1")[-1]
        server.process.send_signal(signal.SIGTERM)
        assert ["STOPPING=1", "STATUS=draining"] == hear(manager, "STOPPING=1")[-1]
        assert 0 == server.process.wait(60)


def test_a_manager_that_does_not_listen_keeps_nobody(demo_repository, tmp_path, manager):
    """A server whose manager has gone serves all the same."""
    models = tmp_path / "models"
    models.mkdir()
    (models / "topics").symlink_to(demo_repository / "topics")
    (tmp_path / "notify").unlink()
    with ServerProcess(models) as server:
        server.wait_for("ready")
        assert 200 == server.get("/readyz")[0]
