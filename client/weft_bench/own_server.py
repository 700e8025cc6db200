"""A server of one bundle, for as long as it is measured: `weft serve` as a process beside this one."""

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from weft._model import Model, ModelState
from weft._server import Server
from weft.exceptions import Error, InvalidRequest, Unavailable

# How long a model may take to load.
READY_S = 300.0
STOP_S = 60.0
NAME = "planned"


class OwnServer(NamedTuple):
    """A server that runs, the one model that it has, and its process."""

    server: Server
    model: Model
    pid: int

    def peak_bytes(self) -> int | None:
        """Return the most memory that it had. None where the system does not tell."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return None


@contextmanager
def serving(bundle: Path, slots: int) -> Iterator[OwnServer]:
    """Serve one bundle while the block lasts. WEFT_ variables are its settings, but for its ports.

    Raises:
        InvalidRequest: there is no bundle.
        Error: the server did not start; its own words are on stderr.
    """
    if not (bundle / "bundle.json").is_file():
        raise InvalidRequest(f"BUNDLE: {str(bundle)!r} holds no bundle.json; weft export makes a bundle")
    with tempfile.TemporaryDirectory() as repository:
        place = Path(repository, NAME, "1")
        place.parent.mkdir()
        place.symlink_to(bundle.resolve())
        port, http_port = _free_ports(2)
        flags = ["--port", str(port), "--http-port", str(http_port), "--slots", str(slots), "--host", "127.0.0.1"]
        settings = ["--drain-delay-s", "0", "--drain-timeout-s", "5", "--log-level", "warning"]
        command = [sys.executable, "-m", "weft_server", repository, *flags, *settings]
        # A session of its own: Ctrl-C reaches us alone, and we stop it. So do other signals that end us.
        with (
            _ended_by_exception() as begin,
            subprocess.Popen(command, stdout=sys.stderr, start_new_session=True) as process,  # noqa: S603 - ours
        ):
            try:
                begin()
                server = Server(f"127.0.0.1:{port}")
                yield OwnServer(server, _ready(server, process), process.pid)
            finally:
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_S)
                process.kill()


@contextmanager
def _ended_by_exception() -> Iterator[Callable[[], None]]:
    """Let SIGTERM and SIGHUP raise SystemExit once `begin` has been called, and until the block ends.

    One that comes before is raised by `begin`: a process that is being started would not be stopped by it.
    """
    came: list[int] = []
    has_begun = False

    def end(number: int, _: object = None) -> None:
        came.append(number)
        if has_begun:
            raise SystemExit(128 + number)

    def begin() -> None:
        nonlocal has_begun
        has_begun = True
        if came:
            end(came[0])

    before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield begin
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _ready(server: Server, process: "subprocess.Popen[bytes]") -> Model:
    until = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < until:
        with suppress(Unavailable), server.client() as client:
            for model in client.list_models():
                if model.state is ModelState.READY:
                    return model
                if model.state is ModelState.FAILED:
                    raise Error(f"the server refuses the bundle: {model.error}")
        time.sleep(0.1)
    raise Error("the server did not start: its last lines say why")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
