"""What a change costs a call: `make bench-pair BEFORE=../other-checkout`. Two checkouts' servers, asked in turn.

Both servers run all the time, and each is asked for half a second before the other is. A machine's speed drifts by more
than a change costs, and so do two runs of one checkout that follow each other. Neighbouring turns do not.
Both checkouts need their environment in `.venv`, and `make models`.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

import smoke
from machine import machine

from weft_proto.v1 import classification_pb2, common_pb2

SECONDS, ROUNDS = 0.6, 24
REQUEST = classification_pb2.ClassifyRequest(token_ids=common_pb2.TokenIds(ids=range(4, 12))).SerializeToString()
# What the other checkout runs, with its own code and bundles. It stands as long as its input is open.
SERVE = """
import sys
sys.path[:0] = ["tests/bench", "tests/bench/peers", "tests", "tests/export"]
import smoke
from process import ServerProcess
with ServerProcess(smoke.trivial_repository() if sys.argv[1] == "trivial" else smoke.MODELS) as server:
    server.wait_for("ready")
    print(server.process.pid, server.target, flush=True)
    sys.stdin.read()
"""


@contextmanager
def serving(checkout, repository):
    """A server of a checkout: its process id, and where it listens."""
    python = checkout / ".venv" / "bin" / "python"
    command = [str(python), "-c", SERVE, repository]
    with subprocess.Popen(command, cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        pid, target = process.stdout.readline().split()
        yield int(pid), target


def cpu_us(pid):
    """What a process and its threads have worked, in microseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e3


def classify(pid, target):
    """Calls per second of a trivial Classify, and the server's CPU a call."""
    began, before = time.monotonic(), cpu_us(pid)
    rate = asyncio.run(smoke.calls_per_s(target, "/weft.v1.ClassificationService/Classify", REQUEST, SECONDS))
    return {"calls_per_s": rate, "cpu_us_a_call": (cpu_us(pid) - before) / (rate * (time.monotonic() - began))}


def writing(load):
    """Tokens per second of a model that writes."""

    def measure(_, target):
        return {"tokens_per_s": asyncio.run(smoke.served_tokens_per_s(target, load._replace(seconds=SECONDS)))}

    return measure


def in_turn(servers, measure):
    """Median of each figure for each server, and of the ratio of the second's to the first's, turn by turn."""
    turns = [[measure(*server) for server in servers] for _ in range(ROUNDS)]
    for figure in turns[0][0]:
        before, after = zip(*((first[figure], second[figure]) for first, second in turns), strict=True)
        ratio = statistics.median(new / old for old, new in zip(before, after, strict=True))
        yield figure, round(statistics.median(before)), round(statistics.median(after)), round(ratio, 3)


def main():
    """Measure a trivial classifier, and the two demonstration models that write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="the checkout to compare with")
    before, now = parser.parse_args().before.resolve(), Path.cwd()
    print("RESULT", json.dumps({"machine": machine()}), flush=True)
    for repository in ("trivial", "models"):
        with serving(before, repository) as first, serving(now, repository) as second:
            writers = {load.model: writing(load) for load in smoke.SMALL}
            measures = {"trivial": classify} if repository == "trivial" else writers
            for name, measure in measures.items():
                for figure, old, new, ratio in in_turn((first, second), measure):
                    result = {"model": name, "figure": figure, "before": old, "now": new, "ratio": ratio}
                    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
