"""`make bench-sampling`: what it costs to choose the next tokens of 32 rows at a vocabulary of 32,000.

One thread, and no model: logits are drawn, flat ones as of a model that knows nothing, and peaked ones. The processor's
time is measured, the best of some runs.
"""

import sys
import time
from pathlib import Path

# Run as a script: what the tests share lies beside and above.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import numpy as np
from machine import machine

from rows_of_logits import candidates_of, settings_of
from weft_server.sampling.processed_candidates import process
from weft_server.sampling.sampler import sample
from worst_processors import worst_rules

ROWS, VOCAB, NUM_CANDIDATES, ROUNDS = 32, 32_000, 64, 7
ENDS = np.array([2])
SCALES = {"flat": 0.5, "middling": 2.0, "peaked": 4.0}
WISHES = {
    "greedy": {"temperature": 0},
    "temperature 1": {},
    "temperature 1, top-p 0.95": {"top_p": 0.95},
    "temperature 2, top-p 0.95": {"temperature": 2, "top_p": 0.95},
    "min-p 0.05": {"min_p": 0.05},
    "eta 0.0001": {"eta_cutoff": 1e-4},
    "typical-p 0.9": {"typical_p": 0.9},
    "all cuts, all rules at their limits": {
        "temperature": 10,
        "top_k": 30_000,
        "top_p": 0.99,
        "min_p": 1e-6,
        "typical_p": 0.99,
        "epsilon_cutoff": 1e-9,
        "eta_cutoff": 1e-9,
    },
}


def milliseconds(candidates, wishes, rules):
    """The least time of a step, and how many of its rows were read whole."""
    times = []
    for step in range(ROUNDS):
        read = []
        settings = settings_of(ROWS, step=step, **wishes)
        started = time.process_time()
        chosen = process(candidates, rules, settings.temperature > 0, ENDS, lambda _: None) if rules else candidates
        sample(chosen, settings, ENDS, read.append)
        times.append(time.process_time() - started)
    return min(times) * 1e3, len(read)


def main():
    """Print a table."""
    print(machine())
    print(f"\n| {ROWS} rows, vocabulary {VOCAB} | logits | ms | rows read whole |\n|---|---|---|---|")
    rng = np.random.default_rng(0)
    for name, scale in SCALES.items():
        candidates = candidates_of(rng.normal(0, scale, (ROWS, VOCAB)).astype(np.float32), NUM_CANDIDATES)
        for wish, wishes in WISHES.items():
            rules = {row: worst_rules(VOCAB, ENDS) for row in range(ROWS)} if "all rules" in wish else {}
            took, num_read = milliseconds(candidates, wishes, rules)
            print(f"| {wish} | {name} | {took:.2f} | {num_read} |")


if __name__ == "__main__":
    main()
