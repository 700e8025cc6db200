"""A function of a test file in a process of its own, held to a time and to memory.

What kills a native library, hangs it or fills memory ends that process, and is a finding with an input. The next call
starts another.
"""

import importlib.util
import os
import resource
import signal
import socket
import subprocess
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

_MEBIBYTE = 1 << 20


class Finding(AssertionError):
    """The function raised what it must not, took too long, or its process died."""


class Bounded:
    """Calls `name` of the Python file `path` there; a context manager that leaves no process behind."""

    def __init__(self, path, name, *, seconds=120, megabytes=2048):
        self._command = [sys.executable, __file__, path, name, str(megabytes)]
        self._seconds = seconds
        self._process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end()

    def __call__(self, *arguments):
        """Return what the function does. Raises Finding."""
        if self._process is None:
            self._start()
        self._connection.send(arguments)
        try:
            if not self._connection.poll(self._seconds):
                self._end()
                raise Finding(f"no answer within {self._seconds} s")
            is_good, answer = self._connection.recv()
        except (EOFError, ConnectionError):
            code = self._process.wait()
            self._end()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise Finding(f"the process ended with {how}") from None
        if not is_good:
            raise Finding(answer)
        return answer

    def _start(self):
        ours, its = socket.socketpair()
        with ours, its:
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                [*self._command, str(its.fileno())], pass_fds=[its.fileno()], env=environment, stdin=subprocess.DEVNULL
            )
            self._connection = Connection(ours.detach())
        self._connection.recv()  # it is ready

    def _end(self):
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
            self._process = None


def _serve(path, name, megabytes, connection):
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + megabytes * _MEBIBYTE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send("ready")
    while True:
        arguments = connection.recv()
        try:
            answer = True, function(*arguments)
        except BaseException:  # noqa: BLE001 - a panic of a library is no Exception
            answer = False, traceback.format_exc()
        connection.send(answer)


if __name__ == "__main__":
    try:
        _serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), Connection(int(sys.argv[4])))
    except (EOFError, ConnectionError):
        os._exit(0)
