"""What one system has to be able to do, and the loop that lets the harness ask it. Standard library only.

An adapter is a script that its own environment's Python runs: a subclass of System, and `serve(ThatSystem())` at its
end. Requests come as JSON lines on stdin and are answered, one line each, on what was stdout; see README.md.
"""

import json
import os
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from memory import peak_mb, reset_peak
from workloads import WORKLOADS

# What the server does for its weights: where huge pages are given to who asks, malloc asks. A setting's "environment".
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# Beside the checkpoint: the same weights as transformers reads them.
HUGGING_FACE = "hugging-face"


@dataclass
class Done:
    """One request answered: how long it was in the system, in seconds, and what came out.

    output: the ids of the new tokens, or the probability of each label in their order.
    """

    seconds: float
    output: list = field(default_factory=list)


class System:
    """One system in one configuration. `workload` is a Workload, `precision` "fp32" or "int8"."""

    def version(self):
        """Name and version of what is measured."""
        raise NotImplementedError

    def settings(self, workload, precision, in_flight, num_cpus):
        """The configurations worth a try, likeliest best first: dicts that JSON can hold; `load` gets one of them.

        "int8" stands for whatever the system has below fp32 that is fastest: say it in the setting. A key "environment"
        holds variables that the process is started with. An empty list: the system cannot do this.
        """
        raise NotImplementedError

    def prepare(self, folder, precision):
        """Write the system's own form of the weights in `folder`/checkpoint (README.md) beside them, unless there."""
        raise NotImplementedError

    def load(self, folder, workload, precision, setting):
        """Open the model, ready to answer."""
        raise NotImplementedError

    def convert(self, requests):
        """Turn requests into whatever `run` takes; off the clock."""
        return requests

    def run(self, converted, in_flight):
        """Answer all, with at most `in_flight` of them in computation at any time; return what `answers` takes."""
        raise NotImplementedError

    def answers(self, ran):
        """Make a Done for each request, in their order, of what `run` returned; off the clock."""
        return ran

    def root(self):
        """The process whose tree's memory counts."""
        return os.getpid()

    def close(self):
        """End what load began."""


class _Loop:
    def __init__(self, system):
        self.system = system

    def version(self):
        return {"version": self.system.version()}

    def settings(self, workload, precision, in_flight, num_cpus):
        return {"settings": self.system.settings(WORKLOADS[workload], precision, in_flight, num_cpus)}

    def prepare(self, folder, precision):
        self.system.prepare(Path(folder), precision)
        return {}

    def load(self, folder, workload, precision, setting):
        started = time.perf_counter()
        self.system.load(Path(folder), WORKLOADS[workload], precision, setting)
        return {"seconds": time.perf_counter() - started}

    def run(self, requests, in_flight, *, outputs=False):
        converted = self.system.convert(requests)
        reset_peak(self.system.root())
        started = time.perf_counter()
        ran = self.system.run(converted, in_flight)
        seconds = time.perf_counter() - started
        done = self.system.answers(ran)
        answer = {
            "seconds": seconds,
            "latencies": [each.seconds for each in done],
            "lengths": [len(each.output) for each in done],
            "peak_rss_mb": peak_mb(self.system.root()),
        }
        return answer | ({"outputs": [each.output for each in done]} if outputs else {})


def serve(system):
    """Answer the harness until its pipe closes. A failure is an answer {"error": text}; the process goes on."""
    # Libraries print to stdout; the answers go where nobody else writes.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    loop = _Loop(system)
    try:
        for line in sys.stdin:
            question = json.loads(line)
            try:
                answer = getattr(loop, question.pop("do"))(**question)
            except Exception as error:  # noqa: BLE001 - whatever a peer raises is its answer
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)
    finally:
        system.close()
