"""Which sources share an encoder run: everyone is in one, and none costs more padding than a run of its own would."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from weft_server.encoder_runs import MAX_MIXED_LENGTH, RUN_COST, runs_of
from weft_server.sequence import Sequence


def lengths_of(*lengths):
    """The runs that sources of these lengths form, by their lengths."""
    sequences = [Sequence(str(length), np.zeros(length, np.int64), length, None) for length in lengths]
    return [[sequence.num_input_tokens for sequence in run] for run in runs_of(sequences)]


def test_near_lengths_share_a_run_and_far_ones_do_not():
    """One or two sources are padded by eight, three are not; sixteen are worth it for one."""
    assert lengths_of(30, 9, 17) == [[9, 17, 30]]
    assert lengths_of(9, 33) == [[9], [33]]
    assert lengths_of(9, 10, 11, 17) == [[9, 10, 11], [17]]
    assert lengths_of(9, 25) == [[9, 25]]


def test_long_sources_share_a_run_at_one_padded_length_only():
    """Beyond 64 tokens padding may show in the bits, so that it must depend on the source alone."""
    assert lengths_of(66, 65, 67) == [[66, 65], [67]]
    assert lengths_of(64, 65) == [[64], [65]]


@given(st.lists(st.integers(1, 200), max_size=40))
def test_everyone_is_in_one_run_that_is_worth_its_padding(lengths):
    """Nobody is lost; a longer one never joins at a price above that of a run of its own."""
    runs = lengths_of(*lengths)

    assert sorted(length for run in runs for length in run) == sorted(lengths)
    for run in runs:
        buckets = [Sequence("", np.zeros(1), length, None).bucket for length in run]
        for index, (before, bucket) in enumerate(itertools.pairwise(buckets), 1):
            assert bucket == before or (index * (bucket - before) <= RUN_COST and bucket <= MAX_MIXED_LENGTH)
