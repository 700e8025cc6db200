"""Is what `weft plan` says so? Plans three models at several rates, and asks a server at those rates by `weft bench`.

For a still machine. Plan and load take turns, each with the same lengths and slots.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy/local"))

from demo import served

WEFT = Path(sys.executable).with_name("weft")
SLOTS = 16
CASES = {
    "en-es": ("12", "20"),
    "pydocs": ("24", "32"),
    "topics": ("24", None),
}
# Of what one server can do.
BUSY = (0.3, 0.6)


def _run(*argv):
    return json.loads(subprocess.run([WEFT, *argv], check=True, capture_output=True, text=True).stdout)


def _main(models):
    print("| model | rate | figure | planned | measured | off by |")
    print("|---|---|---|---|---|---|")
    for model in models or CASES:
        given, answer = CASES[model]
        bundle = str(ROOT / f"build/models/{model}/1")
        lengths = ["--input", given, *(["--output", answer] if answer else [])]
        options = ["--slots", str(SLOTS), "--seconds", "4", "--json"]
        most = _run("plan", bundle, "--rate", "1", *lengths, *options)["most_per_s"]
        asked = ["--model", model, "--input-tokens", given, *(["--output-tokens", answer] if answer else [])]
        for busy in BUSY:
            rate = round(busy * most, 1)
            planned = _run("plan", bundle, "--rate", str(rate), *lengths, *options)
            if planned["replicas"] != 1:
                print(f"| {model} | {rate} | replicas | {planned['replicas']} | 1 | |")
                continue
            with served(ROOT / "build/models", ROOT / "build/bench/plan.log") as target:
                report = _run("bench", "--json", "-t", target, *asked, "--rate", str(rate), "--duration", "20")
            latency = report["latency"]
            figures = {"mean answer": (planned["mean_s"], latency["e2e"]["mean"])}
            if "ttft" in latency:
                figures["first message, p95"] = (planned["ttft_p95_s"], latency["ttft"]["p95"])
            for name, (said, seen) in figures.items():
                times = f"{said * 1e3:.0f} ms | {seen * 1e3:.0f} ms"
                print(f"| {model} | {rate} | {name} | {times} | {said / seen - 1:+.0%} |", flush=True)


if __name__ == "__main__":
    _main(sys.argv[1:])
