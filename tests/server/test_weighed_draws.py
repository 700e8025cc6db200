"""Laws of draws where a run says what all tokens weigh: the same tokens, and fewer rows that the host has to read."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rows_of_logits import NO_END, candidates_of, settings_of, weighed
from weft_server.logits_processors.base import RowRules
from weft_server.logits_processors.history import History
from weft_server.logits_processors.penalties import PresencePenalty, RepetitionPenalty
from weft_server.logits_processors.phrases import SequenceBias
from weft_server.sampling import sampler
from weft_server.sampling.processed_candidates import process
from weft_server.sampling.sampler import Settings, sample

NUM_ROWS, VOCAB = 60, 300


class Watched:
    """Logits whose rows are asked for one by one, as those of a device."""

    def __init__(self, logits):
        self.shape, self._logits, self.asked = logits.shape, logits, set()

    def __getitem__(self, row):
        self.asked.add(row)
        return self._logits[row]


def settings_drawn(rng):
    """Each row's own wishes."""
    return Settings(
        temperature=rng.choice([0.0, 1e-4, 0.3, 0.7, 1.0, 1.5, 9.0], NUM_ROWS),
        top_k=rng.choice([0, 0, 5, 40, 299], NUM_ROWS),
        top_p=rng.choice([0.3, 0.9, 0.99, 1.0], NUM_ROWS),
        seed=rng.integers(0, 2**63, NUM_ROWS).astype(np.uint64),
        step=rng.integers(0, 9, NUM_ROWS),
        min_new=rng.integers(0, 3, NUM_ROWS),
        min_p=rng.choice([0, 0, 0.05], NUM_ROWS),
        typical_p=rng.choice([0.6, 1, 1], NUM_ROWS),
        epsilon_cutoff=rng.choice([0, 0, 0.004], NUM_ROWS),
        eta_cutoff=rng.choice([0, 0, 0.01], NUM_ROWS),
    )


def drawn_logits(rng, scale):
    """Logits, many of which are equal, some -inf, and each row at a height of its own."""
    logits = np.round(rng.normal(0, scale, (NUM_ROWS, VOCAB)) * 8) / 8 + rng.normal(0, 200, (NUM_ROWS, 1))
    logits[:, rng.integers(0, VOCAB, 20)] = -np.inf
    return logits.astype(np.float32)


@given(st.integers(0, 10_000), st.sampled_from([0.1, 1.0, 4.0, 30.0]), st.sampled_from([1, 4, 64, VOCAB]))
def test_no_draw_changes(seed, scale, width):
    """With any settings, at any number of candidates: the tokens and scores of rows whose weights nobody knew."""
    rng = np.random.default_rng(seed)
    logits, settings = drawn_logits(rng, scale), settings_drawn(rng)
    candidates = candidates_of(logits, width)
    end_ids = np.array([3, 7])
    plain = sample(candidates, settings, end_ids)
    told = sample(weighed(candidates, logits, settings), settings, end_ids)
    assert plain[0].tolist() == told[0].tolist()
    assert plain[1].tolist() == told[1].tolist()


@given(st.integers(0, 10_000), st.sampled_from([4, 64]))
def test_rules_make_weights_unknown(seed, width):
    """What all tokens weighed before penalties says nothing of rows that have some. Others go on as before."""
    rng = np.random.default_rng(seed)
    logits, settings = drawn_logits(rng, 2.0), settings_drawn(rng)
    candidates = candidates_of(logits, width)
    rules = {}
    for row in range(0, NUM_ROWS, 2):
        several = (RepetitionPenalty(3.0), PresencePenalty(1.0, -1.5), SequenceBias([([5], 4.0), ([9], -6.0)]))
        rules[row] = RowRules.begin(several, History((1, 2), np.array([3]), 4))
    results = []
    for each in (candidates, weighed(candidates, logits, settings)):
        changed = process(each, rules, settings.temperature > 0, NO_END, lambda _: None)
        results.append(sample(changed, settings, NO_END))
    assert results[0][0].tolist() == results[1][0].tolist()
    assert np.isnan(changed.total_weights[::2]).all()
    assert np.isfinite(changed.total_weights[1::2]).all()


@pytest.mark.parametrize(
    ("temperature", "top_p", "most_before", "most"), [(0.7, 1, 0.3, 0.05), (0.7, 0.9, 0.3, 0.01), (1.3, 1, 1.0, 0.4)]
)
def test_fewer_rows_are_asked_for(temperature, top_p, most_before, most):
    """Of a vocabulary's usual shape: at a temperature, the candidates alone leave many draws open."""
    rng, num, vocab = np.random.default_rng(5), 200, 20_000
    logits = -rng.uniform(1, 2.5, (num, 1)) * np.log(np.arange(1, vocab + 1)) + rng.normal(0, 0.3, (num, vocab))
    logits = logits.astype(np.float32)
    settings = settings_of(num, temperature, 0, top_p)
    shares, tokens = [], []
    for told in (False, True):
        candidates = candidates_of(logits, 64)
        if told:
            candidates = weighed(candidates, logits, settings)
        watched = Watched(logits)
        tokens.append(sample(replace(candidates, logits=watched), settings, NO_END)[0].tolist())
        shares.append(len(watched.asked) / num)
    assert tokens[0] == tokens[1]
    assert most < shares[0] <= most_before
    assert shares[1] <= most


def test_an_open_row_is_looked_at_with_what_is_known(monkeypatch):
    """What all its tokens weigh need not be summed again."""
    known = []
    look = sampler.draw_of_best
    monkeypatch.setattr(sampler, "draw_of_best", lambda *given: known.append(given[-1]) or look(*given))
    logits = np.random.default_rng(6).normal(0, 1, (100, 5_000)).astype(np.float32)
    settings = settings_of(100, 0.5)
    plain = sample(candidates_of(logits, 4), settings, NO_END)[0]
    assert {None} == set(known)
    known.clear()
    told = sample(weighed(candidates_of(logits, 4), logits, settings), settings, NO_END)[0]
    assert known
    assert all(bounds.low < bounds.high < 1.001 * bounds.low for bounds in known)
    assert plain.tolist() == told.tolist()
