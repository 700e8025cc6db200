"""`make bench-overload`: what a server gives at several times the load that it can bear. Figures, not tests.

The server has one processor, and the load generator another. Requests come at random times and wait for nobody.
ARGS=neighbour measures only what a flood on one model costs another one's callers; other names are of `WORK`.
ARGS=http measures the works by HTTP, beside gRPC; ARGS="http classify" one of them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS)]

from machine import machine
from neighbour import neighbour, table
from overload_plot import plot_overload

from process import ServerProcess

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "build" / "models"
OUT = ROOT / "build" / "bench" / "overload"
TIMES = (0.5, 1, 2, 5, 10)
# The load generator is one process, and sends no more than this a second in time.
MAX_RATE = 4000
MAX_QUEUED = 64
CALLERS = 96
SECONDS = 8
# Of the works by HTTP.
FORM = "proto"


class Work(NamedTuple):
    """What is asked of a model: options of `weft bench`."""

    name: str
    options: tuple[str, ...]
    http: str = ""

    def by_http(self, form):
        """The same in a form of `weft bench --http`."""
        return Work(f"{self.name}, HTTP", (*self.options, "--http", form), form)


WORK = (
    Work("generate", ("--model", "pydocs", "--input-tokens", "16", "--output-tokens", "96", "--unary")),
    Work("streams", ("--model", "pydocs", "--input-tokens", "16", "--output-tokens", "96", "--stream")),
    Work("translate", ("--model", "en-es", "--input-tokens", "30", "--output-tokens", "60", "--unary")),
    Work("classify", ("--model", "topics", "--input-tokens", "32")),
)


def loads(server, work, *load):
    """The reports of `weft bench`, a load each."""
    weft = Path(sys.executable).with_name("weft")
    target = server.wait_for("listening")["api"] if work.http else server.target
    command = [weft, "bench", "-t", target, *work.options, *load, "--duration", str(SECONDS), "--json"]
    # It ends with 1 if requests failed otherwise than by a refusal. The table shows them.
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return [json.loads(line) for line in said.stdout.splitlines()]


def point(report, capacity):
    """What one load showed, in seconds and in calls a second."""
    refused = {f"{each['status']} {each['reason']}".strip(): each["count"] for each in report["failures"]}
    return {
        "offered": report["amount"] / capacity,
        "goodput": report["per_s"]["requests"],
        "refused": refused,
        "e2e_p99": report["latency"]["e2e"]["p99"],
        "queue_max": report["server"]["queue"]["max"],
        "late_p99": report["generator"]["late"]["p99"],
    }


def curve(work):
    """Capacity, and a point for each load."""
    # The server and its threads inherit its processor from here.
    os.sched_setaffinity(0, {SERVER_CPU})
    with ServerProcess(MODELS, max_queued_requests=MAX_QUEUED, api_port=0) as server:
        os.sched_setaffinity(0, {CLIENT_CPU})
        server.wait_for("ready")
        (closed,) = loads(server, work, "--concurrency", str(min(CALLERS, MAX_QUEUED)))
        capacity = closed["per_s"]["requests"]
        rates = ",".join(f"{capacity * times:.4g}" for times in TIMES if capacity * times <= MAX_RATE)
        points = [point(report, capacity) for report in loads(server, work, "--sweep", f"rate:{rates}")]
    return {"name": work.name, "capacity": capacity, "points": points}


def row(each, point):
    """A row of the table."""
    best = max(point["goodput"] for point in each["points"])
    refused = ", ".join(f"{count} {reason}" for reason, count in point["refused"].items()) or "-"
    return (
        f"| {each['name']} | {point['offered']:.2g} | {point['goodput']:.0f} | {point['goodput'] / best:.2f} "
        f"| {point['e2e_p99']:.2f} | {point['queue_max']:.2f} | {point['late_p99']:.2f} | {refused} |"
    )


def curves_of(chosen):
    """The curve of each work, printed as it comes."""
    curves = []
    print("| work | load | answers/s | of the peak | e2e p99 s | queued at most s | sent late p99 s | refused |")
    print("|---|---|---|---|---|---|---|---|")
    for work in chosen:
        curves.append(curve(work))
        for each in curves[-1]["points"]:
            print(row(curves[-1], each), flush=True)
    plot_overload(curves, MAX_QUEUED, OUT / "overload.png")
    for each in curves:
        bound = MAX_QUEUED / each["capacity"]
        print(f"{each['name']}: {each['capacity']:.0f} answers/s; {MAX_QUEUED} wait {bound:.2f} s at that pace")
    print(OUT / "overload.png")
    return curves


if __name__ == "__main__":
    SERVER_CPU, CLIENT_CPU = sorted(os.sched_getaffinity(0))[:2]
    OUT.mkdir(parents=True, exist_ok=True)
    asked = sys.argv[1:] or ["neighbour", *(work.name for work in WORK)]
    found = {"machine": machine()}
    if "neighbour" in asked:
        found["neighbour"] = neighbour(MODELS, MAX_QUEUED, SERVER_CPU, CLIENT_CPU)
        print(*table(found["neighbour"]), sep="\n", flush=True)
    chosen = [work for work in WORK if work.name in asked]
    if "http" in asked:
        chosen = [each for work in chosen or WORK for each in (work, work.by_http(FORM))]
    if chosen:
        found["curves"] = curves_of(chosen)
    (OUT / "overload.json").write_text(json.dumps(found, indent=2))
