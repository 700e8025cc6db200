"""One request of each kind against a server of its own, which is gone when this ends, however it ends (`make demo`)."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "demo"
READY_WITHIN_S = 60.0
STOPPED_WITHIN_S = 30.0
ENDS = (signal.SIGINT, signal.SIGTERM)
NEXT = """
That server is gone. Now run `make serve`,
and from a second shell ask something of your own:
  .venv/bin/weft translate "the old women are not buying cheap apples\""""


class ServerFailedError(Exception):
    """The server ended, or was not ready in time; the message says where its log is and how it ends."""


def free_ports(count: int) -> list[int]:
    """Return distinct ports of localhost that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


@contextmanager
def served(
    repository: Path, log: Path, ready_within_s: float = READY_WITHIN_S, *, python: str = sys.executable
) -> Iterator[str]:
    """Serve the repository while the block runs, and yield the server's gRPC target once it is ready.

    The server is that of the environment of `python`.

    Raises:
        ServerFailedError: it ended by itself or was not ready within `ready_within_s`.
    """
    port, http_port = free_ports(2)
    log.parent.mkdir(parents=True, exist_ok=True)
    settings = {
        "WEFT_REPOSITORY": str(repository),
        "WEFT_HOST": "127.0.0.1",
        "WEFT_PORT": str(port),
        "WEFT_HTTP_PORT": str(http_port),
        "WEFT_DRAIN_DELAY_S": "0",
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")} | settings
    # A session of its own: Ctrl-C reaches us alone, and we stop the server.
    with (
        log.open("wb") as output,
        _child(
            [python, "-m", "weft_server"],
            _stop,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as server,
    ):
        _wait_until_ready(server, http_port, log, ready_within_s)
        yield f"127.0.0.1:{port}"


def main(arguments: Sequence[str]) -> int:
    """Run the tour, or the given command, with the server's target in WEFT_TARGET; return its exit status."""
    # SIGTERM ends us as Ctrl-C does: through every `finally`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    tour = [
        sys.executable,
        str(Path(__file__).with_name("tour.py")),
        "--checkpoints",
        str(ROOT / "export/checkpoints"),
        "--out",
        os.path.relpath(BUILD),
    ]
    try:
        print("Starting a server for build/models ...\n", flush=True)
        with served(ROOT / "build" / "models", BUILD / "server.log") as target:
            command = list(arguments) or [*tour, "--target", target]
            environment = os.environ | {"WEFT_TARGET": target}
            # Ctrl-C does not reach the tour, which would show where it was; we end it.
            with _child(command, _kill, env=environment, start_new_session=not arguments) as process:
                status = process.wait()
    except ServerFailedError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if not (arguments or status):
        print(NEXT)
    return status


@contextmanager
def _child(
    command: Sequence[str], end: Callable[[subprocess.Popen[bytes]], None], **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process, and end it when the block does, even if Ctrl-C or SIGTERM came while it was being started."""
    process = None
    try:
        with _held_back():
            process = subprocess.Popen(command, **options)
        yield process
    finally:
        if process is not None:
            end(process)


@contextmanager
def _held_back() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until the end of the block."""
    held: list[int] = []
    handlers = [(each, signal.signal(each, lambda number, _: held.append(number))) for each in ENDS]
    try:
        yield
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
        for number in held:
            signal.raise_signal(number)


def _wait_until_ready(server: subprocess.Popen[bytes], http_port: int, log: Path, within_s: float) -> None:
    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        if server.poll() is not None:
            raise ServerFailedError(f"The server ended with status {server.returncode}. {_tail(log)}")
        if _is_ready(http_port):
            return
        time.sleep(0.1)
    raise ServerFailedError(f"The server was not ready after {within_s:.0f} s. {_tail(log)}")


def _is_ready(http_port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", http_port, timeout=1)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-10:]
    return "\n".join([f"The end of {log}:", *(f"  {line}" for line in lines)])


def _stop(server: subprocess.Popen[bytes]) -> None:
    """SIGTERM, which drains; SIGKILL when that takes too long or is interrupted."""
    server.terminate()
    try:
        server.wait(STOPPED_WITHIN_S)
    except BaseException:
        server.kill()
        server.wait()
        raise


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
