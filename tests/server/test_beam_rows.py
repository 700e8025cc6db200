"""Laws of what a search costs its lane, as counts: what is copied, how often, and what is free when it goes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rows_of_logits import candidates_of
from running import rows_of
from toy import START, VOCAB, Toy
from weft_server.errors import DeadlineExpired, LaneFailed
from weft_server.runtime.session import Session
from weft_server.sequence import Beams, Cancelled, Decoding, FinishReason, Sequence
from weft_server.source import Ids


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """The toy, whose decoder reads a memory, and a session of it."""
    toy = Toy(tmp_path_factory.mktemp("toy"), attends=True)
    return toy, Session(toy.path, 1)


def search(name, num_beams, max_new=9, **more):
    """A search behind a source of three tokens."""
    return Sequence(name, Ids(np.arange(3)), Decoding(max_new, beams=Beams(num_beams)), **more)


def greedy(name, max_new=9):
    """A row that searches nothing."""
    return Sequence(name, Ids(np.arange(3)), Decoding(max_new))


def drawn(rng, rows):
    """Candidates of all rows, of which few end."""
    logits = rng.normal(0, 2, (rows.slots.num_running, VOCAB)).astype(np.float32)
    logits[:, 2] -= 2
    return candidates_of(logits, 16)


def watched(rows):
    """The copies that rows ask for from now on: (sources, targets, starts, stops) of each."""
    copies, fork = [], rows.pasts.fork

    def noted(*pairs):
        copies.append([each.tolist() for each in pairs])
        fork(*pairs)

    rows.pasts.fork = noted
    return copies


@given(st.integers(0, 2**32), st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_only_further_children_are_copied_and_only_from_where_they_part(opened, seed, widths):
    """A step asks for one copy at most. It has a pair for each beam that is not its parent's first child."""
    rows, rng = rows_of(opened, 16), np.random.default_rng(seed)
    for index, width in enumerate(widths):
        rows.begin(search(f"{index}", width, max_new=int(rng.integers(1, 9))), START)
    rows.begin(greedy("beside"), START)
    copies, slots = watched(rows), rows.slots
    while rows.num_held:
        # What a run has read: all that was produced, behind the start token.
        slots.past_lengths[: slots.num_running] = 1 + slots.num_new[: slots.num_running]
        before = slots.output_ids.copy()
        held = {sequence: slots.held_by(sequence) for sequence in slots.sequences if sequence}
        copies.clear()

        given = rows.token_selection.give(0, drawn(rng, rows))

        done = {sequence for sequence, _ in given.found}
        parents = {
            sequence: rows.beams.parents[held[sequence]].tolist()
            for sequence in held
            if sequence.decoding.beams and sequence not in done
        }
        surplus = sum(len(each) - len(set(each)) for each in parents.values())
        assert bool(surplus) == len(copies) <= 1
        for sources, targets, starts, stops in copies:
            assert surplus == len(targets) == len(set(targets))
            assert not set(sources) & set(targets)
            for source, target, start, stop in zip(sources, targets, starts, stops, strict=True):
                num_new = stop - 1
                assert before[source, : start - 1].tolist() == before[target, : start - 1].tolist()
                assert start == stop or before[source, start - 1] != before[target, start - 1]
                assert num_new == slots.num_new[target] - 1
            for sequence, each in parents.items():
                # Who goes on has one child in its own slot.
                assert set(each) <= set(held[sequence])
                assert {parent for slot, parent in zip(held[sequence], each, strict=True) if slot not in targets} == (
                    set(each)
                )
        rows.hand_out(0, given, 0.0)


def test_a_source_is_copied_once_to_each_beam(opened):
    """All of its states, when it has been read. No step copies its memory again, however beams move."""
    rows, rng = rows_of(opened), np.random.default_rng(1)
    (memory,) = (state for state in rows.pasts.states.states if state.memory)
    memory.buffers[:, 0] = 7
    moves, move = [], rows.pasts.move
    rows.pasts.move = lambda *pair: moves.append(pair) or move(*pair)
    one = search("search", 5)

    rows.begin(one, START)
    rows.spread(one)
    assert [(0, slot) for slot in range(1, 5)] == moves
    memory.buffers.flags.writeable = False
    copies = watched(rows)
    while rows.num_held:
        rows.advance(drawn(rng, rows))

    assert len(copies) >= 3
    assert 4 == len(moves)
    assert [(7.0,)] * 5 == [tuple(np.unique(memory.buffers[0, slot, :3])) for slot in range(5)]


@pytest.mark.parametrize("how", ["cancelled", "late", "failed"])
def test_a_search_that_goes_frees_all_its_slots_in_that_step(opened, how):
    """It ends once, its neighbours keep their rows, and the next search finds nothing of it."""
    rows, rng = rows_of(opened, 8), np.random.default_rng(2)
    gone = search("gone", 4, deadline=0.0 if how == "late" else np.inf)
    rows.begin(greedy("beside"), START)
    rows.begin(gone, START)
    rows.begin(search("other", 2), START)
    if how != "late":
        rows.advance(drawn(rng, rows))
        assert (7, 4) == (rows.num_held, gone.num_slots)
    if how == "cancelled":
        rows.drop(gone, Cancelled())
    elif how == "late":
        rows.advance(drawn(rng, rows))
    else:
        rows.fail(lambda: LaneFailed("STEP_FAILED", "broken"))

    ends = {one.sequence.request_id: one for one in rows.hand_over() if one.outcome is not None}
    assert {"cancelled": Cancelled, "late": DeadlineExpired, "failed": LaneFailed}[how] is type(ends["gone"].outcome)
    assert (0, 4) == (gone.num_slots, ends["gone"].num_freed)
    assert (3 if how == "failed" else 1, 0 if how == "failed" else 3) == (len(ends), rows.num_held)
    assert (how != "failed") == rows.beams.num
    rows.slots.check_integrity()
    rows.begin(search("next", 4), START)
    while rows.num_held:
        rows.advance(drawn(rng, rows))
    ended = {one.sequence.request_id: one.outcome for one in rows.hand_over() if one.outcome is not None}
    assert isinstance(ended["next"], FinishReason)
