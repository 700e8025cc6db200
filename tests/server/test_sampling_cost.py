"""What a caller can ask for costs a bounded part of a stable sort of a row, whatever it is, on any machine.

A sort takes as long with whatever instructions. docs/decisions/processed-candidates.md says what was measured.
"""
# ruff: noqa: D102 - the protocols document them

import time
from concurrent.futures import Future

import numpy as np
import pytest

from rows_of_logits import candidates_of, settings_of
from weft_proto.v1 import common_pb2
from weft_server.logits_processors.base import RowRules
from weft_server.logits_processors.constraint import Constraint, Lexicon
from weft_server.logits_processors.history import History
from weft_server.sampling.candidates import best_of_row, top_logprobs_of
from weft_server.sampling.processed_candidates import process, rank
from weft_server.sampling.sampler import sample
from worst_processors import worst_decoding, worst_rules

VOCAB, ENDS, NUM_CANDIDATES = 32_000, np.array([2]), 16
DRAW = {"temperature": 10, "top_p": 0.99}
CUTS = DRAW | {"top_k": 30_000, "min_p": 1e-6, "typical_p": 0.99, "epsilon_cutoff": 1e-9, "eta_cutoff": 1e-9}
LOGITS = np.random.default_rng(0).normal(0, 0.5, (1, VOCAB)).astype(np.float32)
CANDIDATES = candidates_of(LOGITS, NUM_CANDIDATES)


class Anything:
    """A matcher that lets every other word come, and is never done."""

    def compute_bitmask(self):
        return bytes([0x55]) * (VOCAB // 8)

    def consume_token(self, word):
        return True

    def is_accepting(self):
        return False

    def is_error(self):
        return False

    def deep_copy(self):
        return self


class AtOnce:
    """Does the work where it is asked for, so that it counts."""

    def submit(self, work, *given):
        done = Future()
        done.set_result(work(*given))
        return done


def constrained():
    """The rules of a row that follows a constraint. Where odd words alone may come, no candidate is sure to."""
    words = np.arange(VOCAB)
    lexicon = Lexicon(VOCAB, words, words, words, np.array([], np.int64), [b"x"] * VOCAB, [True] * VOCAB, ())
    constraint = Constraint(Anything(), lexicon, frozenset(ENDS.tolist()), AtOnce(), "decoding.constraint")
    return RowRules.begin((constraint,), History([1], room=1))


def choosing(rules=None, **wishes):
    """What gives one row its next token under the rules that `rules` makes. It counts why the row is read whole."""
    settings = settings_of(1, **wishes)

    def choose(count=lambda _: None):
        row = {0: rules()} if rules else {}
        return sample(process(CANDIDATES, row, settings.temperature > 0, ENDS, count), settings, ENDS, count)

    return choose


def all_rules():
    """What makes the rules of a row: always the same."""
    rules = worst_rules(VOCAB, ENDS)
    return lambda: rules


def forked(rules):
    """What makes the rules of a row that goes its own way, by one token."""

    def fork():
        copy = rules.fork()
        copy.advance(4)
        return copy

    return fork


def search():
    """What a search asks of a beam with all rules in a step: a copy of its parent's, and its best tokens."""
    fork = forked(worst_rules(VOCAB, ENDS))
    return lambda: rank(CANDIDATES, 0, fork(), NUM_CANDIDATES, as_log_probs=True)


# How many stable sorts of the row each may take.
KINDS = {
    "a draw that candidates do not decide": (lambda: choosing(**DRAW), 1.5),
    "all cuts": (lambda: choosing(**CUTS), 2.5),
    "all rules": (lambda: choosing(all_rules(), temperature=0), 1),
    "all rules and all cuts": (lambda: choosing(all_rules(), **CUTS), 3.5),
    "all rules in a beam search": (search, 1),
    "a constraint and a draw": (lambda: choosing(forked(constrained()), **DRAW), 1.5),
    "20 top tokens": (lambda: lambda: top_logprobs_of(CANDIDATES, 0, 20), 0.25),
    "64 alternatives": (lambda: lambda: best_of_row(CANDIDATES, 0, 64, ENDS, lambda _: None), 0.25),
}


# Fields of a Decoding that are no rules: the kind that has each at its limit. None: no choice of a token takes longer
# for it. It gives a number of steps or a token, or is no matter of a lane's: a text is looked for where it is made.
OTHERS = {
    "sampling": "all cuts",
    "beams": "all rules in a beam search",
    "alternatives": "64 alternatives",
    "num_outputs": "64 alternatives",
    "constraint": "a constraint and a draw",
} | dict.fromkeys(["max_new_tokens", "greedy", "stop", "forced_first_id", "forced_last_id", "prefix"])


def test_every_field_of_a_decoding_has_its_limit_here():
    """A new one too: it becomes a rule of the worst row, or a kind, or is said to cost nothing."""
    worst = worst_decoding(np.random.default_rng(1), VOCAB)
    ruled = {field.name for field, _ in worst.ListFields()}
    penalties = {field.name for field, _ in worst.penalties.ListFields()}

    assert {field.name for field in common_pb2.Decoding.DESCRIPTOR.fields} == ruled ^ set(OTHERS)
    assert {field.name for field in common_pb2.Penalties.DESCRIPTOR.fields} == penalties
    assert {field.name for field in common_pb2.Sampling.DESCRIPTOR.fields} == {*CUTS, "seed"}
    assert set(KINDS) >= {kind for kind in OTHERS.values() if kind}


def sorts(work, rounds=9):
    """How many stable sorts of the row `work` takes: by the least processor times of both, in turn."""
    least = [float("inf")] * 2
    for _ in range(rounds):
        for index, each in enumerate((work, lambda: np.argsort(-LOGITS[0], kind="stable"))):
            started = time.thread_time()
            each()
            least[index] = min(least[index], time.thread_time() - started)
    return least[0] / least[1]


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_at_its_limit_costs_a_bounded_part_of_a_sort(kind):
    """Rules with their longest lists behind 2,048 tokens, all cuts, flat logits: two to four times what it takes."""
    make, most = KINDS[kind]
    work = make()

    # What else the machine does may take a share of the caches, for a while.
    assert any(sorts(work) < most for _ in range(5))


def test_the_limits_are_those_of_rows_that_are_read_whole():
    """What is timed is the long way."""
    read = []
    choosing(all_rules(), **CUTS)(read.append)
    choosing(**DRAW)(read.append)

    assert ["rules", "draw", "draw"] == read
