"""What happens beside the load: swaps of a model, clients that are killed, and samples of the processes."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from soaked import SWAPPED, cpu_s
from victim import NUM_CALLS

import weft

SAMPLE_EVERY_S = 1.0
SWAP_EVERY_S = 15.0
KILL_EVERY_S = 5.0


class Again(threading.Thread):
    """Does something again and again while it is entered, at random times around a mean. Errors go to a list."""

    def __init__(self, act, every_s, chance, errors):
        super().__init__(daemon=True)
        self._act, self._every_s, self._chance, self._errors = act, every_s, chance, errors
        self._over = threading.Event()

    def run(self):
        """See the class."""
        while not self._over.wait(self._every_s * self._chance.uniform(0.8, 1.2)):
            try:
                self._act()
            except (weft.Error, OSError, AssertionError) as error:
                self._errors.append(f"{type(error).__name__}: {error}")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()


class Swaps:
    """Swaps a model for its other version."""

    def __init__(self, admin):
        self._admin, self._version, self.count = weft.AdminClient(admin), 1, 0

    def __call__(self):
        """Swap once."""
        self._version = 3 - self._version
        assert self._version == self._admin.swap_model(SWAPPED, self._version, timeout=60).version
        self.count += 1


class Kills:
    """Kills clients in the middle of their calls. `num_calls` is how many calls there were at most."""

    def __init__(self, target, chance):
        self._target, self._chance, self.count, self.num_calls = target, chance, 0, 0

    def __call__(self):
        """Kill one client."""
        self.num_calls += NUM_CALLS
        command = [sys.executable, str(Path(__file__).parent / "victim.py"), self._target]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as victim:
            said = victim.stdout.readline()
            time.sleep(self._chance.uniform(0, 0.05))
            victim.kill()
        assert "begun\n" == said, f"a client could not begin its calls: {said!r}"
        self.count += 1


class Sample(NamedTuple):
    """What the server holds, and the processor time used, at some second of a stretch."""

    at_s: float
    rss_mb: float
    fds: int
    threads: int
    server_cpu_s: float
    load_cpu_s: float


class Samples:
    """Looks at the server and at the load."""

    def __init__(self, server, load_pid):
        self._server, self._load_pid, self._started, self.all = server, load_pid, time.monotonic(), []

    def __call__(self):
        """Look once."""
        server = self._server
        self.all.append(
            Sample(
                time.monotonic() - self._started,
                server.rss_bytes() / 1e6,
                server.num_fds(),
                server.num_threads(),
                cpu_s(server.process.pid),
                cpu_s(self._load_pid),
            )
        )
