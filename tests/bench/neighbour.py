"""What a flood on one model costs the callers of another one. A part of `make bench-overload`."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from process import ServerProcess

WEFT = Path(sys.executable).with_name("weft")
FLOODED = ("--model", "pydocs", "--input-tokens", "16", "--output-tokens", "96", "--unary")
BESIDE = ("--model", "topics", "--input-tokens", "32", "--concurrency", "1")
# Seconds of a measurement, and of the flood before and behind it.
SECONDS = 10
MARGIN = 3
# Refusals of a second, beside as many answers as there can be; and callers who each wait for their answer.
REFUSALS = (300, 1500)
IN_FLIGHT = (64, 600)
# The generator of the flood has the neighbour's processor. It must not be what the neighbour waits for.
NICE = 19


def bench(server, options, seconds):
    """`weft bench` with these options, begun."""
    command = [WEFT, "bench", "-t", server.target, *options, "--duration", str(seconds), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def report_of(process):
    """What a `weft bench` of one load said."""
    said, _ = process.communicate()
    (report,) = (json.loads(line) for line in said.splitlines())
    return report


def refused(report):
    """How many calls failed, by status and reason."""
    return {f"{each['status']} {each['reason']}".strip(): each["count"] for each in report["failures"]}


def measured(server, flood):
    """What the neighbour saw during a flood, in seconds, and what became of the flood."""
    flooding = None
    if flood:
        flooding = bench(server, (*FLOODED, *flood), SECONDS + 2 * MARGIN)
        os.setpriority(os.PRIO_PROCESS, flooding.pid, NICE)
        time.sleep(MARGIN)
    beside = report_of(bench(server, BESIDE, SECONDS))
    point = {"latency": beside["latency"]["e2e"], "failed": refused(beside), "answers": None, "refused": {}}
    if flooding:
        flooded = report_of(flooding)
        point |= {"answers": flooded["per_s"]["requests"], "refused": refused(flooded)}
    return point


def neighbour(models, max_queued, server_cpu, client_cpu):
    """The neighbour's latency alone, and beside each flood. Server and generators have a processor each."""
    os.sched_setaffinity(0, {server_cpu})
    with ServerProcess(models, max_queued_requests=max_queued) as server:
        os.sched_setaffinity(0, {client_cpu})
        server.wait_for("ready")
        points = {"quiet": measured(server, ())}
        full = report_of(bench(server, (*FLOODED, "--concurrency", str(max_queued)), SECONDS))
        capacity = full["per_s"]["requests"]
        for number in REFUSALS:
            points[f"{number} refusals/s"] = measured(server, ("--rate", f"{capacity + number:.4g}"))
        for number in IN_FLIGHT:
            points[f"{number} in flight"] = measured(server, ("--concurrency", str(number)))
        points["quiet again"] = measured(server, ())
    return points


def table(points):
    """The rows of the table, in Markdown."""
    quiet = points["quiet"]["latency"]
    yield "| flood on pydocs | topics p50 ms | p99 ms | p50, p99 of quiet | failed | answers/s of the flood | refused |"
    yield "|---|---|---|---|---|---|---|"
    for name, point in points.items():
        p50, p99 = point["latency"]["p50"], point["latency"]["p99"]
        answers = "-" if point["answers"] is None else f"{point['answers']:.0f}"
        told = [
            ", ".join(f"{count} {why}" for why, count in point[key].items()) or "-" for key in ("failed", "refused")
        ]
        ratios = f"{p50 / quiet['p50']:.2f}, {p99 / quiet['p99']:.2f}"
        yield f"| {name} | {1e3 * p50:.1f} | {1e3 * p99:.1f} | {ratios} | {told[0]} | {answers} | {told[1]} |"
