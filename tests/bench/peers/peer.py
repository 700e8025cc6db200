"""The harness's hold on one adapter process."""

import json
import os
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

# The longest question, building a peer's form of the weights, takes about two minutes.
LIMIT_S = 900


class PeerError(Exception):
    """The system cannot do what was asked, and says why."""


class Peer:
    """A running adapter; a context manager that leaves nothing running. Methods are those of adapter._Loop."""

    def __init__(self, system, log, environment=None):
        self.system = system
        self._log = log.open("a")
        names = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        try:
            self.process = subprocess.Popen(
                [str(system.python), str(Path(__file__).with_name(system.script))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=names | (environment or {}),
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            raise PeerError(f"{system.python} does not start: {error.strerror}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @contextmanager
    def awake(self):
        """Within the block its processes run, and behind it they stand still.

        Threads of some systems spin on for a second after their work. They would take the processors from whoever is
        next.
        """
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def close(self):
        """End the process, which it does when nobody asks any more."""
        self._signal(signal.SIGCONT)
        with suppress(BrokenPipeError):  # it ended before it was asked, and what it was asked is still in the buffer
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self._kill()
            self.process.wait()
        self.process.stdout.close()
        self._log.close()

    def _kill(self):
        """End it and whatever it has started, which would go on and slow down the others."""
        self._signal(signal.SIGKILL)

    def _signal(self, number):
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def ask(self, do, **arguments):
        """The adapter's answer.

        Raises:
            PeerError: it answered with an error, ended, or was ended after LIMIT_S seconds without an answer; its own
                words are in the log.
        """
        limit = threading.Timer(LIMIT_S, self._kill)
        limit.start()
        try:
            print(json.dumps({"do": do, **arguments}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        except KeyboardInterrupt:  # which a session of its own keeps from it
            self._kill()
            raise
        finally:
            limit.cancel()
        if not line:
            raise PeerError(f"the process ended, or was ended after {LIMIT_S} s; see {self._log.name}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer
