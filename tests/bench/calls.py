"""`make bench-calls`: what a call costs beside a bare echo by gRPC: a trivial Classify, and one token of pydocs.

All servers run all the time, and each is asked for half a second in turn: a machine's speed drifts by more than what
is measured. Ratios are of neighbours. The server's processor time of a call is told by threads: the event loop's, and
all others', which are the lanes' and gRPC's own.
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
from typing import NamedTuple

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS / "bench" / "peers"), str(TESTS), str(TESTS / "export")]

import smoke
from machine import machine

from process import ServerProcess
from weft_proto.v1 import classification_pb2, common_pb2, generation_pb2
from weft_proto.v1.methods import METHODS

SECONDS = 0.5
CLASSIFY = classification_pb2.ClassifyRequest(token_ids=common_pb2.TokenIds(ids=range(4, 12)))
GENERATE = generation_pb2.GenerateRequest(
    model={"name": "pydocs"},
    token_ids=common_pb2.TokenIds(ids=range(100, 108)),
    decoding=common_pb2.Decoding(max_new_tokens=1),
)


class Asked(NamedTuple):
    """A server's process, where it listens, and what it is asked there."""

    pid: int
    target: str
    path: str
    request: bytes


@contextmanager
def echoing():
    """The bare server: its process id, and where it listens."""
    command = [sys.executable, str(Path(__file__).with_name("echo.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.pid, f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def thread_seconds(pid):
    """Processor seconds of the event loop's thread, and of all others."""
    seconds = {"loop": 0.0, "others": 0.0}
    for task in Path(f"/proc/{pid}/task").iterdir():
        worked = int((task / "schedstat").read_text().split()[0]) / 1e9
        seconds["loop" if task.name == str(pid) else "others"] += worked
    return seconds


def turn(asked):
    """Calls a second, and the server's microseconds of processor time for each, by thread."""
    began, before = time.monotonic(), thread_seconds(asked.pid)
    rate = asyncio.run(smoke.calls_per_s(asked.target, asked.path, asked.request, SECONDS))
    after, calls = thread_seconds(asked.pid), rate * (time.monotonic() - began)
    return {"per_s": rate, **{kind: (after[kind] - before[kind]) / calls * 1e6 for kind in before}}


def main():
    """Print lines that start with RESULT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="turns of each")
    rounds = parser.parse_args().rounds
    print("RESULT", json.dumps({"machine": machine()}), flush=True)
    paths = {name: METHODS[name].path for name in ("Classify", "Generate")}
    with (
        echoing() as echo,
        ServerProcess(smoke.trivial_repository()) as trivial,
        ServerProcess(smoke.MODELS) as models,
    ):
        for server in (trivial, models):
            server.wait_for("ready")
        servers = {
            "echo": Asked(*echo, "/bench.Echo/Echo", CLASSIFY.SerializeToString()),
            "Classify": Asked(trivial.process.pid, trivial.target, paths["Classify"], CLASSIFY.SerializeToString()),
            "Generate": Asked(models.process.pid, models.target, paths["Generate"], GENERATE.SerializeToString()),
        }
        turns = [{name: turn(asked) for name, asked in servers.items()} for _ in range(rounds)]
    for name in servers:
        seen = {figure: round(statistics.median(each[name][figure] for each in turns)) for figure in turns[0][name]}
        over_echo = round(statistics.median(each[name]["per_s"] / each["echo"]["per_s"] for each in turns), 3)
        print("RESULT", json.dumps({"call": name, **seen, "over_echo": over_echo}), flush=True)


if __name__ == "__main__":
    main()
