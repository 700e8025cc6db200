"""Laws of a lane's rows: each token is handed over once, and whoever ends leaves no hole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toy import START, Toy
from weft_server.choosing.candidates import Candidates
from weft_server.engine.rows import Rows
from weft_server.engine.runner import DecodeRunner
from weft_server.engine.slots import Slots
from weft_server.runtime.session import Session
from weft_server.sequence import Cancelled, Decoding, FinishReason, Sequence, StepFailed
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """The toy, and a session of its decoder."""
    toy = Toy(tmp_path_factory.mktemp("toy"))
    return toy, Session(toy.path, 1)


def rows_of(opened, num_slots=6):
    """Rows over the toy's states, nobody in them; 2 ends an answer."""
    toy, session = opened
    slots = Slots(num_slots, 24)
    metrics = Metrics().for_model("toy", 1, "generate")
    return Rows(slots, DecodeRunner(toy.manifest, None, session, slots), end_ids=(2,), metrics=metrics)


def sequence(name, max_new=24, *, streams=False):
    """A sequence with a prompt of three tokens."""
    return Sequence(name, Ids(np.arange(3)), Decoding(max_new), wants_tokens=streams)


def best(*token_ids):
    """Candidates that give each row one of these tokens."""
    ids = np.array(token_ids)[:, None]
    return Candidates(np.zeros(ids.shape, np.float32), ids, np.zeros(len(ids), np.float32), np.zeros((len(ids), 50)))


def given_to(rows):
    """What there is to hand over: (who, tokens, outcome)."""
    return [(one.sequence.request_id, one.token_ids, one.outcome) for one in rows.hand_over()]


def test_a_stream_gets_each_token_as_it_comes_and_others_all_at_the_end(opened):
    """Each token once, in order, whoever else is there."""
    rows = rows_of(opened)
    rows.begin(sequence("streams", 3, streams=True), START)
    rows.begin(sequence("waits", 2), START)

    rows.advance(best(5, 6))
    assert [("streams", [5], None)] == given_to(rows)
    rows.advance(best(7, 8))
    assert [("streams", [7], None), ("waits", [6, 8], FinishReason.LENGTH)] == given_to(rows)
    rows.advance(best(2))
    assert [("streams", [2], FinishReason.STOP)] == given_to(rows)
    assert 0 == rows.num_held


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("outcome", [Cancelled(), FinishReason.STOP_STRING], ids=["cancelled", "stop string"])
def test_who_is_dropped_is_given_no_more_tokens(opened, streams, outcome):
    """Its caller has gone, or has what it wants."""
    rows, dropped = rows_of(opened), sequence("dropped", streams=streams)
    rows.begin(dropped, START)
    rows.advance(best(5))
    rows.hand_over()

    rows.drop(dropped, outcome)
    rows.drop(dropped, outcome)

    assert [("dropped", [], outcome)] == given_to(rows)
    assert 1 == dropped.num_output_tokens


def test_a_failure_ends_everybody_and_leaves_all_slots_free(opened):
    """Each with an error of its own; what came before it is not lost."""
    rows = rows_of(opened)
    for name in "abc":
        rows.begin(sequence(name, streams=name == "a"), START)
    rows.begin_prompt(sequence("prompt"))
    rows.advance(best(5, 6, 7))

    rows.fail(RuntimeError("broken"))

    (first, *ends) = given_to(rows)
    assert ("a", [5], None) == first
    assert ["a", "b", "c", "prompt"] == [name for name, _, _ in ends]
    assert [StepFailed] * 4 == [type(outcome) for _, _, outcome in ends]
    assert 4 == len({id(outcome) for _, _, outcome in ends})
    assert 0 == rows.num_held == rows.slots.num_used


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.booleans())
def test_rows_stay_a_prefix_with_the_prompt_behind_them(opened, ends, has_prompt):
    """Whoever ends, in whatever order: held slots have no hole, and each keeps its own numbers."""
    rows = rows_of(opened)
    held = [sequence(name) for name in "abcde"]
    for one in held:
        rows.begin(one, START)
    if has_prompt:
        held.append(sequence("prompt"))
        rows.begin_prompt(held[-1])
    for one in held:
        rows.slots.output_ids[one.slot, 0] = ord(one.request_id[0])

    for end in ends:
        if end < len(held):
            rows.drop(held.pop(end), Cancelled())
        rows.slots.check_integrity()
        assert len(held) == rows.num_held
        if rows.prompt is not None:
            assert rows.slots.num_running == rows.prompt.slot
        for one in held:
            assert ord(one.request_id[0]) == rows.slots.output_ids[one.slot, 0]
