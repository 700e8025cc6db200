"""A server whose stages a test holds open, and what it has under way."""

import json
import re
import time
from collections import Counter

from process import PATIENCE_S, ServerProcess

# What is zero when nothing is under way.
GAUGES = (
    "weft_requests_queued",
    "weft_queued_tokens",
    "weft_oldest_queued_seconds",
    "weft_requests_running",
    "weft_requests_explaining",
    "weft_requests_constraining",
    "weft_requests_adapting",
    "weft_decode_slots_used",
    "weft_kv_cache_utilization",
    "weft_messages_receiving",
    "weft_held_bytes",
    "weft_answers_sending",
    "weft_answers_sending_bytes",
)
_SAMPLE = re.compile(r"^(weft_\w+(?<!_bucket))(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Held(ServerProcess):
    """A real server with failpoints, one lane for each model: who is asked while it is held shares a batch."""

    def __init__(self, repository, folder, **settings):
        self._folder = folder
        settings = {"lanes": 1, "drain_timeout_s": 60, "failpoints": folder} | settings
        super().__init__(repository, **settings)

    def metrics(self):
        """As ServerProcess has it, without the buckets, and read in a tenth of the time."""
        samples = {}
        for name, labels, value in _SAMPLE.findall(self.page()):
            samples[name, frozenset(_LABEL.findall(labels))] = float(value)
        return samples

    def say(self, point, what):
        """What happens at a point from now on."""
        (self._folder / "fresh").write_text(what)
        (self._folder / "fresh").rename(self._folder / point)

    def free(self, *points):
        """Nothing happens at some points any more."""
        for point in points:
            (self._folder / point).unlink(missing_ok=True)

    def is_held(self, point):
        """Whether somebody is held at a point."""
        return any(self._folder.glob(f"{point}@*"))

    def under_way(self):
        """How many calls and tasks there are."""
        (self._folder / "ask").touch()
        self.wait_until((self._folder / "answer").exists, what="an answer")
        told = json.loads((self._folder / "answer").read_text())
        (self._folder / "answer").unlink()
        return told

    def ended(self, model):
        """RPCs that ended, by their status code."""
        found = Counter()
        for (name, labels), value in self.metrics().items():
            if name == "weft_requests_total" and ("model", model) in labels:
                found[dict(labels)["code"]] += int(value)
        return found

    def queue(self, model, ask, is_off=lambda: False):
        """Ask, and wait until the request's input has been read, and it waits for a lane. Returns what `ask` gives.

        The wait is off when `is_off` says so: somebody who waited has left.
        """
        before = self.metric("weft_queued_tokens", model=model)
        asked = ask()
        self.wait_until(
            lambda: self.metric("weft_queued_tokens", model=model) > before or is_off(), what="one more that waits"
        )
        return asked

    def wait_for_rest(self, num_tasks, timeout=PATIENCE_S):
        """Wait until nothing is under way: calls, tasks, slots, caches, queues."""
        deadline = time.monotonic() + timeout
        while True:
            left = {name: value for name in GAUGES if (value := self.metric(name))}
            told = self.under_way()
            if not left and told == {"calls": 0, "tasks": num_tasks}:
                return
            assert time.monotonic() < deadline, f"{left} and {told} are left, with {num_tasks} tasks at rest"
            time.sleep(0.01)
