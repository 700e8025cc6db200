"""`make simulate`: what 1 to 1,000 replicas do under a load, when a zone is lost, and while an autoscaler is late.

The scheduler is the server's own. Steps take as long as they take here, measured first. The rest is arithmetic: nothing
here says what a network, a load balancer or a kubelet adds.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from numpy import polyfit

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests/bench"))

from simulated_cluster import Autoscaler, Cluster
from simulated_plot import plot
from simulated_replica import Costs

OUT = ROOT / "build/bench/simulate"
LANES, SLOTS = 2, 32
INPUT, OUTPUT = (8, 40), (20, 100)
MEAN_INPUT, MEAN_OUTPUT = sum(INPUT) // 2, sum(OUTPUT) // 2


def measure(directory):
    """What a real server takes, by the levels of `weft plan`: all that a token costs is in its step, gRPC too.

    With n requests at once a lane has its share of them as rows, and each row a token of each step. A line is laid
    through that.
    """
    weft = Path(sys.executable).with_name("weft")
    asked = ["--rate", "1", "--input", str(MEAN_INPUT), "--output", str(MEAN_OUTPUT), "--slots", str(SLOTS)]
    command = [weft, "plan", str(directory), *asked, "--seconds", "3", "--json"]
    levels = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["levels"]
    return costs_of(levels)


def costs_of(levels):
    """What steps and reading take, by what so many requests at once showed.

    A lane reads a request's input while its other rows wait. So a round of n rows takes the steps of an answer and the
    reading of n inputs.
    """
    rows = [max(1, each["in_flight"] / LANES) for each in levels]
    rounds = [each["in_flight"] / each["per_s"] for each in levels]
    alone = rounds[0] / MEAN_OUTPUT
    read_s = max(0.0, levels[0]["first_s"] - alone) / MEAN_INPUT
    steps = [(each - number * read_s * MEAN_INPUT) / MEAN_OUTPUT for each, number in zip(rounds, rows, strict=True)]
    row_s, step_s = polyfit(rows, steps, 1)
    return Costs(read_s, max(1e-5, float(step_s)), max(0.0, float(row_s)))


def capacity(costs):
    """Answers a second of one replica whose lanes are full."""
    rows = SLOTS // LANES
    read = costs.read_token_s * MEAN_INPUT
    return LANES / (MEAN_OUTPUT * costs.step(rows) / rows + read)


def lengths(random):
    """Tokens of an input and of its answer."""
    return random.randint(*INPUT), random.randint(*OUTPUT)


def quantile(values, share):
    """Of sorted ones."""
    return values[min(len(values) - 1, int(share * len(values)))]


def in_scale(costs, num_replicas, busy, seconds):
    """One row of the table."""
    cluster = Cluster(costs, num_replicas, lanes=LANES, slots=SLOTS)
    rate = busy * num_replicas * capacity(costs)
    began = time.monotonic()
    cluster.run(seconds, lambda now: rate, lengths)
    firsts = sorted(each.first - each.came for each in cluster.requests if not each.is_refused)
    refused = sum(each.is_refused for each in cluster.requests)
    p50, p95, p99 = (quantile(firsts, share) * 1e3 for share in (0.5, 0.95, 0.99))
    times = f"{p50:.0f} | {p95:.0f} | {p99:.0f}"
    took = time.monotonic() - began
    print(f"| {num_replicas:,} | {busy:.0%} | {len(firsts):,} | {times} | {refused} | {took:.0f} |", flush=True)


def main():
    """Measure, simulate, write a table and a picture."""
    OUT.mkdir(parents=True, exist_ok=True)
    costs = measure(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/models/en-es/1")
    most = capacity(costs)
    print(f"a step: {costs.step_s * 1e3:.2f} ms and {costs.row_s * 1e3:.3f} ms a row; {most:.0f} answers/s a replica\n")
    print("| replicas | load | answers | first token p50, ms | p95 | p99 | refused | simulated in, s |")
    print("|---|---|---|---|---|---|---|---|")
    for num_replicas, seconds in ((1, 300), (10, 60), (100, 10), (1000, 2)):
        for busy in (0.6, 0.9):
            in_scale(costs, num_replicas, busy, seconds)
    lost = Cluster(costs, 12, lanes=LANES, slots=SLOTS)
    lost.lose_zone(60.0)
    lost.run(120.0, lambda now: 0.6 * 12 * most, lengths)
    late = Cluster(costs, 4, lanes=LANES, slots=SLOTS)
    late.scale(Autoscaler(), 240.0)
    late.run(240.0, lambda now: (0.5 if now < 30 else 1.5) * 4 * most, lengths)
    cases = {
        "a zone of three is lost after 60 s, at 60 % load": lost,
        "the load is three times as high after 30 s": late,
    }
    for title, cluster in cases.items():
        again = sum(each.times_asked > 1 for each in cluster.requests)
        refused = sum(each.is_refused for each in cluster.requests)
        print(f"\n{title}: {len(cluster.requests):,} requests, {again} asked again, {refused} refused")
    plot(cases, OUT / "simulate.png")
    (OUT / "costs.json").write_text(json.dumps(costs._asdict()))
    print(f"\nThe picture: {(OUT / 'simulate.png').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
