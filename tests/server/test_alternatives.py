"""The law of the tokens that alternatives begin with: they are the row's best, found without sorting it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rows_of_logits import candidates_of
from weft_server.choosing.alternatives import nth_best

VOCAB = 50
IDS = st.sets(st.integers(0, VOCAB - 1))


@given(st.integers(0, 99), st.integers(0, VOCAB + 2), st.sampled_from([1, 8, VOCAB]), IDS)
def test_the_nth_best_is_that_of_the_sorted_row(seed, rank, num_candidates, barred):
    """However few candidates there are, and where many logits are equal, the lower id comes first."""
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(0, 2, (1, VOCAB))).astype(np.float32)
    logits[0, rng.integers(0, VOCAB, 9)] = -np.inf
    ids = np.argsort(-logits[0], kind="stable")
    expected = [token for token in ids.tolist() if token not in barred and logits[0, token] > -np.inf]

    found = nth_best(candidates_of(logits, num_candidates), 0, rank, np.array(sorted(barred), np.int64))

    assert (expected[rank] if rank < len(expected) else None) == found
