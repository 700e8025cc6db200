"""One server on two cores, against two servers that have one core each: answers a second and first tokens, in turn.

For a still machine of two cores. The generator runs on the same cores.
"""

import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy/local"))

from demo import served

WEFT = Path(sys.executable).with_name("weft")
MODEL, LENGTHS = "en-es", ["--input-tokens", "12", "--output-tokens", "20"]
ROUNDS, SECONDS, CALLERS = 5, "6", "32"


def _asked(target):
    load = ["-c", CALLERS, "--duration", SECONDS, "--warmup", "1"]
    command = [WEFT, "bench", "--json", "-t", target, "--model", MODEL, *LENGTHS, *load]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return report["per_s"]["requests"], report["latency"]["ttft"]["p95"] * 1e3


def _pinned(stack, number, cpus):
    # What is started inherits it.
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        return stack.enter_context(served(ROOT / "build/models", ROOT / f"build/bench/pinned-{number}.log"))
    finally:
        os.sched_setaffinity(0, mine)


def _main():
    first, second, *_ = sorted(os.sched_getaffinity(0))
    seen = {"one server, two cores": [], "two servers, a core each": []}
    with ExitStack() as stack:
        whole = _pinned(stack, 0, {first, second})
        parts = [_pinned(stack, number, {core}) for number, core in ((1, first), (2, second))]
        targets = dict(zip(seen, (whole, f"ipv4:{','.join(parts)}"), strict=True))
        for _ in range(ROUNDS):
            for name, target in targets.items():
                seen[name].append(_asked(target))
    print("| | answers/s, median | from | to | first token p95, ms |")
    print("|---|---|---|---|---|")
    for name, rounds in seen.items():
        rates, firsts = zip(*rounds, strict=True)
        middle = statistics.median(rates)
        print(f"| {name} | {middle:.0f} | {min(rates):.0f} | {max(rates):.0f} | {statistics.median(firsts):.0f} |")


if __name__ == "__main__":
    _main()
