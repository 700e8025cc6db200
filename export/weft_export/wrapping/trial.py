"""ONNX Runtime in a process of its own, where a graph of others may take so much memory and time, and no more.

A graph may ask for a terabyte, or for years, in three nodes. The process then ends, and who started it goes on.
"""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from weft_export.errors import ExportError
from weft_export.verification.session import onnxruntime, open_session

MAX_SECONDS = 1800
"""Of all runs together. A large BERT takes a quarter of an hour on two slow cores."""
MAX_SPACE = 2**33
"""Bytes of address space, besides four times the weights. Three texts of 2048 tokens take a large BERT 3 GB."""
# What ONNX Runtime, C++ and Python say of it.
_NO_MEMORY = ("Failed to allocate memory", "bad_alloc", "MemoryError")
_MODULE = "weft_export.wrapping.trial"


class Port(NamedTuple):
    """An input or an output, as ONNX Runtime says it."""

    name: str
    type: str
    shape: Sequence[object]


Ports = Sequence[tuple[str, str, Sequence[object]]]


class Trial:
    """A process with sessions in it, as long as a with-block lasts."""

    def __init__(self, weights: int) -> None:
        """Start the process. `weights` is how many bytes they take."""
        ours, its = socket.socketpair()
        with ours, its:
            self._space = MAX_SPACE + 4 * weights
            command = [sys.executable, "-m", _MODULE, str(its.fileno()), str(self._space)]
            # What it says when it has no memory is for who debugs it.
            self._process = subprocess.Popen(command, pass_fds=[its.fileno()], stderr=subprocess.DEVNULL)  # noqa: S603
            self._connection = Connection(ours.detach())
        self._deadline = time.monotonic() + MAX_SECONDS

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def open(self, path: Path, num_threads: int = 1) -> "TrialSession":
        """Open a file as the next session.

        Raises:
            RuntimeError: ONNX Runtime refuses it.
            ExportError: the process takes too much, or ends.
        """
        return TrialSession(self, *self.ask("open", str(path.absolute()), num_threads))

    def ask(self, *question: Any) -> Any:
        """Return what the process answers. Raises as `open` does."""
        try:
            self._connection.send(question)
            if not self._connection.poll(max(0.0, self._deadline - time.monotonic())):
                raise ExportError(f"the graph's trial runs take over {MAX_SECONDS} s together")
            is_good, answer = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            code = self._process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise ExportError(
                f"ONNX Runtime ended with {how} over the graph; it could take {self._space / 1e9:.1f} GB of memory"
            ) from error
        if not is_good and any(words in answer for words in _NO_MEMORY):
            raise ExportError(f"the graph asks for more memory than its trial may take, {self._space / 1e9:.1f} GB")
        if not is_good:
            raise RuntimeError(answer)
        return answer


class TrialSession:
    """What an InferenceSession is, as far as it is asked for here."""

    def __init__(self, trial: Trial, number: int, inputs: Ports, outputs: Ports) -> None:
        self._trial, self._number = trial, number
        self._inputs, self._outputs = ([Port(*port) for port in ports] for ports in (inputs, outputs))

    def get_inputs(self) -> list[Port]:
        """Return the inputs."""
        return self._inputs

    def get_outputs(self) -> list[Port]:
        """Return the outputs."""
        return self._outputs

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run on arrays. Raises as Trial.open does."""
        outputs: list[Any] = self._trial.ask("run", self._number, names, dict(feeds))
        return outputs


def _serve(connection: Connection, space: int) -> None:
    sessions: list[Any] = []

    def open_(path: str, num_threads: int) -> tuple[int, Ports, Ports]:
        session = open_session(Path(path), num_threads)
        sessions.append(session)
        inputs, outputs = (
            [(port.name, port.type, port.shape) for port in get()] for get in (session.get_inputs, session.get_outputs)
        )
        return len(sessions) - 1, inputs, outputs

    def run(number: int, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        outputs: list[Any] = sessions[number].run(names, feeds)
        return outputs

    calls: dict[str, Callable[..., Any]] = {"open": open_, "run": run}
    onnxruntime()  # without memory it would seem not to be installed
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    space = space if hard == resource.RLIM_INFINITY else min(space, hard)
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        name, *arguments = connection.recv()
        try:
            answer = True, calls[name](*arguments)
        except Exception as error:  # noqa: BLE001 - ONNX Runtime's errors share no narrower type
            answer = False, str(error) or type(error).__name__
        connection.send(answer)


def main() -> None:
    """Answer until nobody asks."""
    try:
        _serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
    except (EOFError, ConnectionError):
        os._exit(0)


if __name__ == "__main__":
    main()
