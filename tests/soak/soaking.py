"""One soak: a server, its load, what happens beside it, and what came out."""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from caller import Ended
from others import KILL_EVERY_S, SAMPLE_EVERY_S, SWAP_EVERY_S, Again, Kills, Sample, Samples, Swaps
from soaked import Soaked, make_repository

from held import GAUGES

MODELS = Path(__file__).parents[2] / "build" / "models"
# The first share of a soak warms up, but for no longer than this. Nothing of it is in a slope or a p99.
WARM_SHARE, MAX_WARM_S = 0.2, 240.0
# Swaps before the load. The allocator's gaps fill up over so many of them, at any pace: see `make test-swaps`.
NUM_FIRST_SWAPS = 50
# How long a server may take until it is at rest.
REST_S = 30.0


class Rest(NamedTuple):
    """What a server holds at rest: gauges that are not zero, open files, threads."""

    gauges: dict[str, float]
    fds: int
    threads: int


class Soak(NamedTuple):
    """What came out.

    `before` and `after` are at rest, on both sides of what is measured. `ended` and `counted` are the server's, as in
    `Soaked`. `killed` are the calls that killed clients had begun. `errors` are of swaps and of clients to kill, and
    what the server's log complains of.
    """

    calls: list[Ended]
    samples: list[Sample]
    before: Rest
    after: Rest
    ended: Counter
    counted: Counter
    num_swaps: int
    num_kills: int
    killed: int
    errors: list[str]


class Soaking:
    """A server and its load, while they run."""

    def __init__(self, server, load, seed):
        self._server, self._load, self._chance = server, load, random.Random(seed)
        self.swaps = Swaps(server.wait_for("listening")["admin"])
        self.kills = Kills(server.target, self._chance)
        self.errors = []

    def stretch(self, seconds):
        """Let the load run for some seconds, and all else beside it. Returns the samples."""
        samples = Samples(self._server, self._load.pid)
        with (
            Again(samples, min(SAMPLE_EVERY_S, seconds / 60), self._chance, self.errors),
            Again(self.swaps, min(SWAP_EVERY_S, seconds / 4), self._chance, self.errors),
            Again(self.kills, min(KILL_EVERY_S, seconds / 4), self._chance, self.errors),
        ):
            self._load.stdin.write(f"{seconds}\n")
            self._load.stdin.flush()
            _hear(self._load, "rest")
        return samples.all

    def rest(self, most=None):
        """What the server holds when nothing is under way, and no more than `most` files are open."""
        deadline = time.monotonic() + REST_S
        while True:
            # Whoever reads the metrics has a thread and a connection for it.
            time.sleep(0.5)
            fds, threads = self._server.num_fds(), self._server.num_threads()
            gauges = {name: value for name in GAUGES if (value := self._server.metric(name))}
            if (not gauges and (most is None or fds <= most)) or time.monotonic() > deadline:
                return Rest(gauges, fds, threads)


def _hear(load, word):
    said = load.stdout.readline()
    assert f"{word}\n" == said, f"the load has ended; it said {said!r}"


@contextmanager
def _load(server, rate, path, seed):
    """The process of the load, from when it has the golden answers."""
    targets = [server.target, server.wait_for("listening")["api"]]
    command = [sys.executable, str(Path(__file__).parent / "load.py"), *targets, str(rate), str(path), str(seed)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        try:
            _hear(load, "ready")
            yield load
        finally:
            load.stdin.close()


def measured_s(seconds):
    """What of a soak is behind its warm-up."""
    return seconds - min(WARM_SHARE * seconds, MAX_WARM_S)


def soak(seconds, rate, folder, seed, leak_bytes=0):
    """Soak a server for some seconds, with `rate` calls a second. Each call is a line of calls.jsonl in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "calls.jsonl"
    with tempfile.TemporaryDirectory() as models, Soaked(make_repository(MODELS, Path(models)), leak_bytes) as server:
        server.wait_for("ready")
        with _load(server, rate, path, seed) as load:
            soaking = Soaking(server, load, seed)
            for _ in range(NUM_FIRST_SWAPS):
                soaking.swaps()
            soaking.stretch(seconds - measured_s(seconds))
            before = soaking.rest()
            samples = soaking.stretch(measured_s(seconds))
            after = soaking.rest(before.fds)
        swaps, kills = soaking.swaps, soaking.kills
        with path.open() as lines:
            calls = [Ended(*json.loads(line)) for line in lines]
        errors = [*soaking.errors, *map(str, server.complaints)]
        found = (server.ended, server.counted(), swaps.count, kills.count, kills.num_calls, errors)
        return Soak(calls, samples, before, after, *found)
