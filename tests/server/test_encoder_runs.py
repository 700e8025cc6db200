"""Which sources share an encoder run: everyone is in one, and none costs more padding than a run of its own would."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from weft_server.engine.run_shapes import EXACT, RUN_COST, UNPADDED, runs_of
from weft_server.sequence import Sequence
from weft_server.source import SHORT, Ids, Pixels


def of(length):
    """A sequence of so many tokens."""
    return Sequence(str(length), Ids(np.zeros(length, np.int64)), None)


def lengths_of(*lengths, shapes=EXACT):
    """The runs that sources of these lengths form, by their lengths."""
    sequences = [of(length) for length in lengths]
    return [[sequence.num_input_tokens for sequence in run] for run in runs_of(sequences, shapes)]


def test_near_lengths_share_a_run_and_far_ones_do_not():
    """Sixteen tokens of padding are worth a run, whether one source is padded by sixteen or two by eight."""
    assert [[9, 25]] == lengths_of(25, 9)
    assert [[9], [26]] == lengths_of(9, 26)
    assert [[9, 17, 25]] == lengths_of(25, 9, 17)
    assert [[9, 17], [26]] == lengths_of(9, 17, 26)
    assert [[9, 9, 9], [15]] == lengths_of(9, 9, 9, 15)


def test_long_sources_share_a_run_at_one_padded_length_only():
    """Beyond 64 tokens padding may show in the bits, so that it must depend on the source alone."""
    assert [[65, 66], [67]] == lengths_of(66, 65, 67)
    assert [[64], [65]] == lengths_of(64, 65)
    assert [[55, 64]] == lengths_of(64, 55)


def test_what_is_computed_is_what_an_encoder_is_given():
    """Texts are padded to one width; pictures, whose patches count, are what they are."""
    picture = Pixels(np.zeros((3, 240, 240), np.float32), (15, 15))
    texts = [of(length).source for length in (9, 25)]
    assert 2 * 25 == EXACT.computed_tokens(texts)
    assert 9 == EXACT.computed_tokens(texts[:1])
    assert 66 == EXACT.computed_tokens([of(65).source])
    assert 2 * 225 == EXACT.computed_tokens([picture] * 2)
    assert 9 + 25 == UNPADDED.computed_tokens(texts)


def test_where_no_padding_is_computed_all_short_sources_share_a_run():
    """Long ones stay with their like, because padding may show in their bits."""
    assert [[1, 9, 26, 64], [65, 66], [67]] == lengths_of(66, 26, 64, 67, 1, 65, 9, shapes=UNPADDED)


@given(st.lists(st.integers(1, 200), max_size=40))
def test_everyone_is_in_one_run_that_is_worth_its_padding(lengths):
    """Nobody is lost; a longer one never joins at a price above that of a run of its own."""
    runs = lengths_of(*lengths)

    assert sorted(lengths) == sorted(length for run in runs for length in run)
    for run in runs:
        widths = [of(length).source.width for length in run]
        for index, (before, width) in enumerate(itertools.pairwise(widths), 1):
            assert width == before or (index * (width - before) <= RUN_COST and width <= SHORT)
