"""What a caller can ask for costs a bounded multiple of what reading a row costs."""

import time

import numpy as np

from rows_of_logits import candidates_of, settings_of
from weft_server.choosing.processed import process
from weft_server.choosing.sampler import sample
from worst_rules import worst_rules

VOCAB, ENDS = 32_000, np.array([2])
# Of one sort of the row's logits. That takes a tenth of what a greedy row costs in a batch of a small model, so the
# worst row costs a few greedy ones.
MOST = 40


def least(work, rounds=7):
    """The least processor time of some runs of `work`."""
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def test_every_setting_at_its_limit_costs_a_bounded_multiple():
    """All rules with their longest lists behind 2,048 tokens, all cuts, and a draw that candidates do not decide."""
    logits = np.random.default_rng(0).normal(0, 0.5, (1, VOCAB)).astype(np.float32)
    candidates, rules = candidates_of(logits, 64), {0: worst_rules(VOCAB, ENDS)}
    cuts = {"min_p": 1e-6, "typical_p": 0.99, "epsilon_cutoff": 1e-9, "eta_cutoff": 1e-9}
    settings = settings_of(1, 10, 30_000, 0.99, **cuts)
    read = []

    def choose():
        sample(process(candidates, rules, settings.temperature > 0, ENDS, read.append), settings, ENDS, read.append)

    choose()
    assert {"rules", "draw"} == set(read)
    assert least(choose) < MOST * least(lambda: np.sort(logits.astype(np.float64)))
