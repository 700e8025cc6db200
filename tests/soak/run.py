"""`make soak`: a server under a mixed load with faults for a long time, and a gate that says what it kept.

    python tests/soak/run.py MINUTES [--leak] [--rate CALLS_A_SECOND]

MINUTES is all of it, but for two minutes of starts, first swaps and rests. A fifth of it, at most CONTROL_S, belongs to
a control that comes first: a server that leaks LEAK_MB in what is measured of it, evenly over its calls. The same gate
must find that it leaks, and nothing else wrong with it. Then the server itself has to pass. The exit code is 0 if both
are so. With --leak there is the leaking server alone, and the exit code says that it was found: 1.

What is measured begins after a warm-up: see soaking.py. What the gate asks stands in gate.py. The report, each call and
a picture are in build/soak.
"""

import argparse
import sys
import time
from pathlib import Path

# Run as a script: what the tests share lies above and beside.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "bench")]

from gate import ALLOWED_MB, judge
from report import print_report, write_report
from soak_plot import plot_soak
from soaking import measured_s, soak

OUT = Path(__file__).parents[2] / "build" / "soak"
# Calls a second. Server, load and the rest then use less than 60 % of two cores.
RATE = 100.0
CONTROL_SHARE, CONTROL_S = 0.2, 240.0
# Ten times what the gate allows.
LEAK_MB = 10 * ALLOWED_MB


def run(title, seconds, rate, folder, leak_bytes=0):
    """Soak a server, and tell of it. Returns what was not kept."""
    seed = int(time.time())
    print(f"\n## {title}\n\n{seconds / 60:.1f} minutes, {rate:g} calls a second, seed {seed}\n", flush=True)
    found = soak(seconds, rate, folder, seed, leak_bytes)
    verdicts = judge(found)
    print_report(found, verdicts)
    write_report(found, verdicts, folder / "report.json")
    plot_soak(found, folder / "soak.png")
    return [verdict.what for verdict in verdicts if not verdict.is_kept]


def run_control(seconds, rate):
    """Soak a server that leaks. Returns what was not kept."""
    leak_bytes = int(1e6 * LEAK_MB / rate / measured_s(seconds))
    return run(f"A server that leaks {leak_bytes} bytes a call", seconds, rate, OUT / "control", leak_bytes)


def main():
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--leak", action="store_true", help="soak the leaking server alone")
    parser.add_argument("--rate", type=float, default=RATE, help="calls a second, for a slower machine")
    arguments = parser.parse_args()
    seconds, rate = 60 * arguments.minutes, arguments.rate
    if arguments.leak:
        return int(bool(run_control(seconds, rate)))
    control_s = min(CONTROL_SHARE * seconds, CONTROL_S)
    is_caught = run_control(control_s, rate) == ["memory"]
    print(f"\nThe leaking control {'was caught' if is_caught else 'was NOT caught as it should be'}.")
    broken = run("The server", seconds - control_s, rate, OUT)
    print(f"\nNot kept: {', '.join(broken) or 'nothing'}.")
    return int(bool(broken) or not is_caught)


if __name__ == "__main__":
    sys.exit(main())
