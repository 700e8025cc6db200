"""Laws of the tokens that alternatives begin with: they are the row's best, found once for all, without sorting it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rows_of_logits import candidates_of
from running import rows_of
from toy import START, Toy
from weft_server.logits_processors.phrases import Suppressed
from weft_server.runtime.session import Session
from weft_server.sampling import candidates, processed_candidates
from weft_server.sampling.candidates import best_of_row
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids

VOCAB = 50
IDS = st.sets(st.integers(0, VOCAB - 1))


@given(st.integers(0, 99), st.integers(1, VOCAB + 2), st.sampled_from([1, 8, VOCAB]), IDS)
def test_the_best_are_those_of_the_sorted_row(seed, num, num_candidates, barred):
    """However few candidates there are, and where many logits are equal, the lower id comes first."""
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(0, 2, (1, VOCAB))).astype(np.float32)
    logits[0, rng.integers(0, VOCAB, 9)] = -np.inf
    ids = np.argsort(-logits[0], kind="stable")
    expected = [token for token in ids.tolist() if token not in barred and logits[0, token] > -np.inf]
    read = []

    found = best_of_row(candidates_of(logits, num_candidates), 0, num, np.array(sorted(barred), np.int64), read.append)

    assert expected[:num] == found
    few = sum(token in expected for token in ids[:num_candidates].tolist()) < num
    assert ["alternatives"] * few == read


@pytest.mark.parametrize("rules", [(), (Suppressed(range(30)),)], ids=["", "rules"])
@pytest.mark.parametrize("num_requests", [1, 2])
def test_a_row_is_ranked_once_for_all_alternatives_of_a_request(tmp_path, monkeypatch, rules, num_requests):
    """Not once for each of them. They all hold the same until then, so one row is asked."""
    toy = Toy(tmp_path)
    rows = rows_of((toy, Session(toy.path, 1)), 12)
    for index in range(num_requests):
        decoding = Decoding(4, alternatives=True, num_outputs=6, rules=rules)
        rows.begin(Sequence(f"{index}", Ids(np.arange(3)), decoding), START)
    logits = np.repeat(np.random.default_rng(0).normal(size=(1, VOCAB)).astype(np.float32), 6 * num_requests, axis=0)
    ranked, whole = [], []
    best, processing = candidates.best, processed_candidates.whole
    monkeypatch.setattr(candidates, "best", lambda scores, most: ranked.append(most) or best(scores, most))
    monkeypatch.setattr(processed_candidates, "whole", lambda *given: whole.append(1) or processing(*given))

    rows.advance(candidates_of(logits, 4))

    assert ([6] * num_requests, len(rules) * num_requests) == (ranked, len(whole))
    counters = rows.metrics.counters
    assert num_requests == counters["rows_read_whole_total", "alternatives"].value
    order = [token for token in np.argsort(-logits[0], kind="stable").tolist() if not rules or token >= 30]
    for slot in range(6 * num_requests):
        assert order[rows.slots.rank[slot]] == rows.slots.output_ids[slot, 0]
