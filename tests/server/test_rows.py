"""Laws of a lane's rows: each token is handed over once, and whoever ends leaves no hole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from running import best, given_to, rows_of
from toy import START, Toy
from weft_server.errors import DeadlineExpired, LaneFailed
from weft_server.logits_processors.penalties import RepetitionPenalty
from weft_server.logits_processors.phrases import Suppressed
from weft_server.runtime.session import Session
from weft_server.sampling.candidates import Candidates, force, top_logprobs_of
from weft_server.sequence import Cancelled, Decoding, FinishReason, Sequence
from weft_server.source import Ids


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """The toy, and a session of its decoder."""
    toy = Toy(tmp_path_factory.mktemp("toy"))
    return toy, Session(toy.path, 1)


def sequence(name, max_new=24, *, prefix=(), streams=False, scores=False, **settings):
    """A sequence with a prompt of three tokens."""
    decoding = Decoding(max_new, **settings)
    return Sequence(name, Ids(np.arange(3)), decoding, prefix, wants_tokens=streams, wants_scores=scores)


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

    rows.fail(lambda: LaneFailed("STEP_FAILED", "broken"))

    (first, *ends) = given_to(rows)
    assert ("a", [5], None) == first
    assert ["a", "b", "c", "prompt"] == [name for name, _, _ in ends]
    assert [LaneFailed] * 4 == [type(outcome) for _, _, outcome in ends]
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


def test_a_prefix_is_fed_before_the_first_token_and_is_no_part_of_an_answer(opened):
    """Each row is fed its own, whatever the model would have written there, an end token included."""
    rows = rows_of(opened)
    for name, prefix in (("two", (31, 32)), ("none", ()), ("three", (41, 42, 43))):
        rows.begin(sequence(name, 2, prefix=prefix, streams=name == "two"), START)
    fed = []
    for step in range(5):
        held = [one.request_id for one in rows.slots.sequences if one]
        fed.append(dict(zip(held, rows.slots.input_ids[:, 0].tolist(), strict=False)))
        # The first two choices of a row in its prefix would end it.
        rows.advance(best(*(2 if name != "none" and step < 2 else 10 + step for name in held)))

    assert [
        {"two": START, "none": START, "three": START},
        {"two": 31, "none": 10, "three": 41},
        {"two": 32, "three": 42},
        {"two": 12, "three": 43},
        {"three": 13},
    ] == fed
    assert [
        ("none", [10, 11], FinishReason.LENGTH),
        ("two", [12], None),
        ("two", [13], FinishReason.LENGTH),
        ("three", [13, 14], FinishReason.LENGTH),
    ] == given_to(rows)


def test_a_row_moves_with_what_is_left_of_its_prefix(opened):
    """Another row's end changes nothing of it."""
    rows = rows_of(opened)
    rows.begin(sequence("ends", 1), START)
    rows.begin(sequence("moves", 1, prefix=(31, 32, 33)), START)
    rows.advance(best(5, 5))
    assert 0 == rows.slots.sequences[0].slot
    fed = []
    for token in (6, 7, 8):
        fed.append(int(rows.slots.input_ids[0, 0]))
        rows.advance(best(token))
    assert [31, 32, 33] == fed
    assert [("ends", [5], FinishReason.LENGTH), ("moves", [8], FinishReason.LENGTH)] == given_to(rows)


def test_a_row_in_its_prefix_ends_at_its_deadline_and_when_it_is_dropped(opened):
    """Nothing of it was produced, so nothing is handed over and nothing is counted as wasted."""
    rows = rows_of(opened)
    late, gone = sequence("late", prefix=(31, 32)), sequence("gone", prefix=(31, 32))
    late.deadline = 0.0
    for one in (late, gone):
        rows.begin(one, START)
    rows.advance(best(5, 5))
    rows.drop(gone, Cancelled())

    (first, second) = given_to(rows)
    assert (("late", [], DeadlineExpired), ("gone", [], Cancelled)) == (
        (*first[:2], type(first[2])),
        (*second[:2], type(second[2])),
    )
    assert (0, 0, 0.0) == (late.num_output_tokens, gone.num_output_tokens, gone.times.first_token)
    assert 0 == rows.num_held


def test_the_last_token_is_the_forced_end(opened):
    """Only where a request allows no more, and the answer has not ended before."""
    rows = rows_of(opened, end_ids=(2, 3))
    for name, max_new in (("one", 1), ("two", 2), ("stops", 3)):
        rows.begin(sequence(name, max_new, prefix=(31,), forced_last_id=3), START)
    rows.advance(best(9, 9, 9))
    rows.advance(best(5, 6, 7))
    # "stops" has moved into the place of "one".
    rows.advance(best(2, 8))
    assert [
        ("one", [3], FinishReason.LENGTH),
        ("two", [6, 3], FinishReason.LENGTH),
        ("stops", [7, 2], FinishReason.STOP),
    ] == given_to(rows)


@pytest.mark.parametrize(
    ("chosen", "reason"), [(3, FinishReason.STOP), (2, FinishReason.LENGTH), (9, FinishReason.LENGTH)]
)
def test_a_forced_end_that_the_model_has_chosen_is_its_own(opened, chosen, reason):
    """Then the answer has ended by itself. It has not where another end token was chosen, which is not given."""
    rows = rows_of(opened, end_ids=(2, 3))
    rows.begin(sequence("one", 1, forced_last_id=3), START)
    rows.advance(best(chosen))
    assert [("one", [3], reason)] == given_to(rows)


def test_a_forced_end_has_the_log_probability_that_the_model_gives_it(opened):
    """For who asks for scores; who does not is given no number that could be taken for one."""
    rows = rows_of(opened)
    asks, does_not = (sequence(name, 1, scores=name == "asks", forced_last_id=2) for name in ("asks", "does not"))
    rows.begin(asks, START)
    rows.begin(does_not, START)
    logits = np.random.default_rng(0).normal(0, 3, (2, 50)).astype(np.float32)
    order = np.argsort(-logits, axis=1)[:, :4]
    assert 2 not in order
    log_total = np.log(np.exp(logits).sum(axis=1))
    rows.advance(Candidates(np.take_along_axis(logits, order, 1), order, log_total, logits))

    by_name = {one.sequence.request_id: one.log_probs for one in rows.hand_over()}
    assert [pytest.approx(float(logits[0, 2] - log_total[0]))] == by_name["asks"]
    assert np.isnan(by_name["does not"]).all()


def test_rules_look_back_at_the_prompt_and_at_what_was_produced(opened):
    """A row's rules go with it through moves, beside rows without; its log-probabilities stay the model's own."""
    rows = rows_of(opened)
    ruled = sequence("ruled", 3, scores=True)
    ruled.decoding = Decoding(3, rules=(Suppressed([5]), RepetitionPenalty(10.0)))
    logits = np.tile(np.linspace(9, 1, 50, dtype=np.float32), (2, 1))
    log_total = np.log(np.exp(logits).sum(axis=1))

    def step(num_rows):
        top = np.tile(np.arange(8), (num_rows, 1))
        rows.advance(Candidates(logits[:num_rows, :8], top, log_total[:num_rows], logits[:num_rows]))

    rows.begin(sequence("plain", 1), START)
    rows.begin_prompt(ruled)
    rows.end_prompt()
    step(2)
    assert 0 == ruled.slot
    step(1)
    step(1)

    # 0, 1 and 2 are the prompt's, 5 is suppressed, 3 and 4 have come.
    (plain, end) = rows.hand_over()
    assert ([0], [3, 4, 6]) == (plain.token_ids, end.token_ids)
    assert [pytest.approx(float(logits[0, token] - log_total[0])) for token in (3, 4, 6)] == end.log_probs


def test_an_answer_begins_with_what_it_is_forced_to(opened):
    """One token a step, whatever the model says, an end token included; other rows go on beside it."""
    rows = rows_of(opened)
    rows.begin(sequence("forced", 4, prefix=(31,), forced_ids=(7, 8)), START)
    rows.begin(sequence("free", 2, streams=True), START)
    for _ in range(2):
        rows.advance(best(*(2 if one.request_id == "forced" else 5 for one in rows.slots.sequences if one)))
    rows.advance(best(2))
    rows.advance(best(9))
    rows.advance(best(2))
    assert [
        ("free", [5], None),
        ("free", [5], FinishReason.LENGTH),
        ("forced", [7, 8, 9, 2], FinishReason.STOP),
    ] == given_to(rows)


def test_a_forced_beginning_has_the_log_probabilities_of_the_model(opened):
    """And the rules look back at it."""
    rows = rows_of(opened)
    rows.begin(sequence("one", 2, scores=True, forced_ids=(7,), rules=(RepetitionPenalty(10.0),)), START)
    logits = np.linspace(1, 3, 50, dtype=np.float32)[None]
    logits[0, 7] = 9
    log_total = np.log(np.exp(logits).sum(axis=1))
    top = np.argsort(-logits, axis=1)[:, :4]
    for _ in range(2):
        rows.advance(Candidates(np.take_along_axis(logits, top, 1), top, log_total, logits))
    (end,) = rows.hand_over()
    assert [7, 49] == end.token_ids
    assert [pytest.approx(float(logits[0, token] - log_total[0])) for token in (7, 49)] == end.log_probs


def test_a_stop_token_ends_its_own_row_only(opened):
    """As an end token of the model does."""
    rows = rows_of(opened)
    rows.begin(sequence("stops", stop_ids=frozenset([9])), START)
    rows.begin(sequence("goes on", 2), START)
    rows.advance(best(9, 9))
    rows.advance(best(5))
    assert [("stops", [9], FinishReason.STOP), ("goes on", [9, 5], FinishReason.LENGTH)] == given_to(rows)


def test_a_prompt_that_was_read_once_begins_all_rows_of_its_request():
    """Its row is repeated. Rows that are as many stay as they are."""
    logits = np.array([[1, 2, 3], [6, 5, 4]], np.float32)
    top = logits.argsort()[:, ::-1][:, :2]
    one = Candidates(np.take_along_axis(logits, top, 1), top, np.array([7, 8], np.float32), logits)
    assert one is one.stretched(2)
    all_rows = one.stretched(4)
    assert [[2, 1], [0, 1], [0, 1], [0, 1]] == all_rows.topk_ids.tolist()
    assert [[3, 2], [6, 5], [6, 5], [6, 5]] == all_rows.topk_logits.tolist()
    assert [7, 8, 8, 8] == all_rows.logsumexp.tolist()
    assert [[1, 2, 3], [6, 5, 4], [6, 5, 4], [6, 5, 4]] == [all_rows.logits[row].tolist() for row in range(4)]
    assert (4, 3) == all_rows.logits.shape


def test_tokens_that_a_graph_rules_out_are_none_of_the_most_probable():
    """There may be fewer then. More than the candidates are looked for among all logits."""
    logits = np.array([[1.0, -np.inf, 3.0, -np.inf]], np.float32)
    top = np.array([[2, 0, 1]])
    candidates = Candidates(np.take_along_axis(logits, top, 1), top, np.array([4], np.float32), logits)
    for num, found in ((1, [2]), (2, [2, 0]), (3, [2, 0]), (4, [2, 0])):
        said = top_logprobs_of(candidates, 0, num)
        assert (found, [float(logits[0, token]) - 4 for token in found]) == (said.token_ids, said.log_probs)


def test_a_token_that_is_forced_stands_in_the_place_of_the_chosen_one():
    """Token 0 too. Its log-probability is the model's, or NaN where nobody wants it. Where it was chosen nothing is."""
    logits = np.log(np.array([[0.5, 0.25, 0.25]] * 5, np.float32))
    top = np.tile(np.array([0, 1]), (5, 1))
    candidates = Candidates(np.take_along_axis(logits, top, 1), top, np.zeros(5, np.float32), logits)
    ids, log_probs = np.array([1, 0, 0, 1, 2]), np.full(5, 9, np.float32)
    scored = np.array([True, True, False, True, True])
    replaced = force(candidates, ids, log_probs, np.array([0, 2, 2, 1, -1]), scored=scored)
    assert [True, True, True, False, False] == replaced.tolist()
    assert [0, 2, 2, 1, 2] == ids.tolist()
    np.testing.assert_allclose(log_probs, [np.log(0.5), np.log(0.25), np.nan, 9, 9], rtol=1e-6)
