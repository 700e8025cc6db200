"""Laws of the slots: running rows stay a prefix, and a moved row takes everything along."""

from dataclasses import asdict, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_server.engine.slots import Slots
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids


def make(name, sampling=None):
    """A sequence with a decoding that names it."""
    return Sequence(name, Ids(np.zeros(3, np.int64)), Decoding(7, 2, (), sampling))


def test_a_placed_row_starts_afresh():
    """Nothing of the slot's last tenant shows."""
    slots = Slots(2, 8)
    slots.past_lengths[:], slots.num_new[:], slots.sampling.temperature[:] = 5, 5, 5

    slots.place(0, make("a", Sampling(0.5, 3, 0.9, 11)))
    slots.place(1, make("b"))

    assert [0, 0] == slots.past_lengths.tolist() == slots.num_new.tolist()
    assert [0.5, 0] == slots.sampling.temperature.tolist()
    assert ([7, 7], [2, 2], [3, 0]) == (slots.max_new.tolist(), slots.min_new.tolist(), slots.sampling.top_k.tolist())
    assert [11, 0] == slots.sampling.seed.tolist()


def test_a_row_is_sampled_as_its_request_asks():
    """Every field of Sampling reaches the sampler, by its own name."""
    asked = Sampling(0.5, 3, 0.9, 11, 0.1, 0.8, 0.02, 0.03)
    slots = Slots(2, 8)
    slots.place(0, make("a", asked))
    slots.num_running = 1

    settings = slots.settings(0, 1)

    assert asdict(asked) == {field.name: getattr(settings, field.name).item() for field in fields(Sampling)}


def test_a_held_slot_is_not_given_twice():
    """A broken invariant is loud."""
    slots = Slots(2, 8)
    slots.place(0, make("a"))

    with pytest.raises(AssertionError, match="This is a bug"):
        slots.place(0, make("b"))


def test_a_row_that_is_taken_out_comes_back_whole():
    """In another slot it has all its numbers, but for the past, which it has to read again; its old slot is free."""
    slots, row = Slots(3, 8), make("a", Sampling(0.5, 3, 0.9, 11))
    slots.place(1, row)
    slots.num_new[1], slots.output_ids[1], slots.past_lengths[1], slots.tops[1] = 3, range(8), 9, ["top"]

    kept = slots.take_out(1)
    assert (None, 0, 0) == (row.slot, row.num_slots, slots.num_used)
    slots.place(1, make("b"))
    slots.put_back(2, kept)

    assert (2, 1, row) == (row.slot, row.num_slots, slots.sequences[2])
    assert (3, 0.5, 11, 0) == tuple(
        each[2] for each in (slots.num_new, slots.sampling.temperature, slots.sampling.seed, slots.past_lengths)
    )
    assert ([*range(8)], ["top"], []) == (slots.output_ids[2].tolist(), slots.tops[2], slots.tops[1])


@given(st.lists(st.integers(0, 9), max_size=40))
def test_rows_keep_their_numbers_through_any_moves(ends):
    """Fill, end rows in any order as a lane does, refill: every row keeps its numbers, and rows are a prefix."""
    slots, made = Slots(4, 8), 0
    for end in ends:
        while slots.num_running < 4:
            sequence = make(f"{made}")
            slots.place(slots.num_running, sequence)
            slots.output_ids[slots.num_running, :] = made
            slots.past_lengths[slots.num_running] = made
            slots.num_running += 1
            made += 1
        hole, last = end % 4, slots.num_running - 1
        slots.clear(hole)
        if hole != last:
            slots.move(last, hole)
        slots.num_running -= 1
        slots.check_integrity()

        for slot in range(slots.num_running):
            mark = int(slots.sequences[slot].request_id)
            assert [mark] * 8 == slots.output_ids[slot].tolist()
            assert mark == slots.past_lengths[slot]
