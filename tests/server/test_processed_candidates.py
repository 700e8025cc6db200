"""Laws of processed candidates: they are what the whole row gives, however few candidates there are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rows_of_logits import NO_END, candidates_of, settings_of
from weft_server.logits_processors.base import RowRules
from weft_server.logits_processors.history import History
from weft_server.logits_processors.penalties import (
    LengthDecay,
    NoRepeat,
    NoSourceRepeat,
    PresencePenalty,
    RepetitionPenalty,
    SourceRepetitionPenalty,
)
from weft_server.logits_processors.phrases import Banned, SequenceBias, Suppressed
from weft_server.sampling.processed_candidates import process, rank, whole
from weft_server.sampling.sampler import sample

VOCAB = 40
IDS = st.lists(st.integers(0, VOCAB - 1), max_size=12)
PHRASES = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=2)
RULES = st.lists(
    st.one_of(
        st.builds(RepetitionPenalty, st.floats(0.2, 5)),
        st.builds(SourceRepetitionPenalty, st.floats(0.2, 5)),
        st.builds(Suppressed, IDS),
        st.builds(Suppressed, IDS, st.integers(0, 3)),
        st.builds(PresencePenalty, st.floats(-2, 2), st.floats(-2, 2)),
        st.builds(NoRepeat, st.integers(1, 3)),
        st.builds(NoSourceRepeat, st.integers(1, 3)),
        st.builds(Banned, st.lists(PHRASES, max_size=4)),
        st.builds(SequenceBias, st.lists(st.tuples(PHRASES, st.floats(-9, 9)), max_size=4)),
        st.builds(LengthDecay, st.integers(0, 4), st.floats(0.5, 4), IDS),
    ),
    max_size=3,
).map(tuple)


def row_rules(rules, given=(1, 2), source=(3,), produced=()):
    """The rules of a row that has produced some tokens."""
    one = RowRules.begin(rules, History(given, np.array(source, np.int64), len(produced) + 4))
    for token in produced:
        one.advance(token)
    return one


def rough(rng, n=1):
    """Logits [n, VOCAB] of few values, so that there are many ties."""
    return np.round(rng.normal(0, 2, (n, VOCAB)) * 2).astype(np.float32) / 2


def ignore(_):
    """Count nothing."""


@given(RULES, IDS, IDS, st.integers(0, 99), st.sampled_from([1, 4, 16, 40]), st.integers(1, 8), st.booleans())
def test_ranked_candidates_are_the_best_of_the_whole_row(rules, source, produced, seed, width, need, as_log_probs):
    """The same tokens with the same scores in the same order, ties by the lower id."""
    logits = rough(np.random.default_rng(seed))
    one = row_rules(rules, source=source, produced=produced)
    candidates = candidates_of(logits, width)
    shift = candidates.logsumexp[0] if as_log_probs else np.float32(0)
    scores = whole(logits, 0, one, shift)

    ranked, _ = rank(candidates, 0, one, need, as_log_probs=as_log_probs)

    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > -np.inf]
    assert len(ranked.ids) >= min(need, len(order))
    assert order[: len(ranked.ids)].tolist() == ranked.ids.tolist()
    assert np.array_equal(scores[ranked.ids], ranked.scores)


@given(
    RULES, IDS, IDS, st.integers(0, 99), st.sampled_from([(0, 0, 1), (1, 0, 1), (0.7, 5, 1), (1, 0, 0.8), (2, 9, 1)])
)
def test_a_row_with_rules_is_given_what_its_whole_row_gives(rules, source, produced, seed, wishes):
    """1, 8 or all candidates lead to the same token: that of the same row with the rules applied beforehand."""
    logits = np.random.default_rng(seed).normal(0, 2, (30, VOCAB)).astype(np.float32)
    one = row_rules(rules, source=source, produced=produced)
    processed = np.stack([whole(logits, row, one) for row in range(len(logits))])
    settings = settings_of(len(logits), *wishes)
    expected, _ = sample(candidates_of(processed, VOCAB), settings, NO_END)

    for width in (1, 8, VOCAB):
        candidates = candidates_of(logits, width)
        changed = process(candidates, dict.fromkeys(range(30), one), settings.temperature > 0, NO_END, ignore)
        assert expected.tolist() == sample(changed, settings, NO_END)[0].tolist()


def test_rows_without_rules_are_left_alone():
    """Their candidates are the same numbers, and a draw from them is the same."""
    logits = np.random.default_rng(1).normal(0, 2, (20, VOCAB)).astype(np.float32)
    candidates, settings = candidates_of(logits, 8), settings_of(20, 1.0, 0, 0.9)
    alone = sample(candidates, settings, NO_END)

    rules = dict.fromkeys(range(0, 20, 2), row_rules((RepetitionPenalty(3.0), Suppressed([5, 6, 7]))))
    changed = process(candidates, rules, settings.temperature > 0, NO_END, ignore)
    beside = sample(changed, settings, NO_END)

    for row in range(1, 20, 2):
        assert np.array_equal(candidates.topk_logits[row], changed.topk_logits[row])
        assert (alone[0][row], alone[1][row]) == (beside[0][row], beside[1][row])


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_row_whose_rules_leave_no_token_ends(temperature):
    """Its next token is an end token."""
    logits = np.random.default_rng(1).normal(0, 2, (1, VOCAB)).astype(np.float32)
    rules = {0: row_rules((Suppressed(range(VOCAB)),))}
    ends = np.array([7, 9])
    settings = settings_of(1, temperature)

    changed = process(candidates_of(logits, 8), rules, settings.temperature > 0, ends, ignore)

    assert [7] == sample(changed, settings, ends)[0].tolist()


def test_a_row_is_read_whole_only_where_its_candidates_do_not_decide():
    """Bans of the best 5 of 8 leave 3. Bans of all 8 leave none. What may rise is read by itself."""
    logits = np.arange(VOCAB, dtype=np.float32)[None, ::-1].copy()
    seen = []

    def read(*rules):
        seen.clear()
        process(candidates_of(logits, 8), {0: row_rules(rules, given=(20,))}, np.array([False]), NO_END, seen.append)
        return seen.copy()

    assert [] == read(Suppressed(range(5)))
    assert ["rules"] == read(Suppressed(range(8)))
    assert [] == read(Suppressed(range(8)), RepetitionPenalty(0.1))


def test_a_token_beyond_may_tie_with_the_last_candidate():
    """Ranked before they were scaled, equal logits stand in any order. The lower id comes first all the same."""
    logits = np.zeros((1, VOCAB), np.float32)
    logits[0, [30, 31, 3]] = [9, 7, 7]
    candidates = replace(candidates_of(logits, 2), topk_ids=np.array([[30, 31]]))
    rules = {0: row_rules((Suppressed([30]),))}

    changed = process(candidates, rules, np.array([False]), NO_END, ignore)

    assert [3] == sample(changed, settings_of(1, 0), NO_END)[0].tolist()


def test_a_fork_goes_its_own_way():
    """What one row's copy is told changes nothing of the other."""
    first = row_rules((RepetitionPenalty(2.0),), produced=(4,))
    second = first.fork()
    second.advance(9)
    first.advance(11)

    assert ([1, 2, 4, 11], [1, 2, 4, 9]) == (first.touched(9).tolist(), second.touched(9).tolist())
    assert ([4, 11], [4, 9]) == (first.history.produced.tolist(), second.history.produced.tolist())


def test_many_tokens_that_may_rise_are_found_in_the_whole_row():
    """Of more than some hundreds, or a part of a short row, the row is read. The tokens are the same."""
    rng = np.random.default_rng(4)
    for vocab, num, reads in ((9000, 500, False), (9000, 600, True), (3000, 180, False), (3000, 200, True)):
        logits = rng.normal(0, 2, (1, vocab)).astype(np.float32)
        one = row_rules((SourceRepetitionPenalty(3.0),), source=rng.permutation(vocab)[:num])
        ranked, was_read = rank(candidates_of(logits, 16), 0, one, 4)
        assert reads == was_read
        assert np.argsort(-whole(logits, 0, one), kind="stable")[:4].tolist() == ranked.ids[:4].tolist()


@pytest.mark.parametrize("width", [8, VOCAB])
def test_what_a_draw_divides_by_is_the_sum_of_the_whole_row(width):
    """The model's own sum, and what its tokens have gained by the rules: also where their scores are far from 0."""
    logits = np.random.default_rng(2).normal(9, 2, (30, VOCAB)).astype(np.float32)
    one = row_rules((PresencePenalty(0.5, 0.25), Suppressed([3])), produced=(4, 4, 6))
    settings = settings_of(30, 1.0, 0, 1)
    changed = process(
        candidates_of(logits, width), dict.fromkeys(range(30), one), settings.temperature > 0, NO_END, ignore
    )
    expected = [np.log(np.exp(whole(logits, row, one).astype(np.float64)).sum()) for row in range(30)]
    np.testing.assert_allclose(changed.logsumexp, expected, atol=1e-4)
