"""Each rule does what transformers' processor of the same name does, element for element."""

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from weft_server.logits_processors.base import RowRules
from weft_server.logits_processors.history import History
from weft_server.logits_processors.penalties import (
    MAX_GROWTH,
    LengthDecay,
    NoRepeat,
    NoSourceRepeat,
    PresencePenalty,
    RepetitionPenalty,
    SourceRepetitionPenalty,
)
from weft_server.logits_processors.phrases import AllowedTokens, Banned, SequenceBias, Suppressed
from weft_server.logits_processors.timestamps import Timestamps

VOCAB = 20
TOKEN = st.integers(0, VOCAB - 1)
# Few different tokens, so that they repeat.
TOKENS = st.lists(st.one_of(TOKEN, st.integers(0, 2)), min_size=1, max_size=14)
SIZE = st.integers(1, 4)
PENALTY = st.floats(0.125, 10, width=32)
PHRASE = st.lists(st.one_of(TOKEN, st.integers(0, 2)), min_size=1, max_size=4).map(tuple)
ENDS = st.lists(TOKEN, min_size=1, max_size=3, unique=True)


@st.composite
def pairs(draw):
    """A rule of ours, and transformers' processor, for a row that was given, has produced, and has a source."""
    given_ids, produced, source = draw(TOKENS), draw(st.lists(st.integers(0, 3), max_size=8)), draw(TOKENS)
    kinds = {
        "repetition": lambda: (
            RepetitionPenalty(penalty := draw(PENALTY)),
            transformers.RepetitionPenaltyLogitsProcessor(penalty),
        ),
        "source repetition": lambda: (
            SourceRepetitionPenalty(penalty := draw(PENALTY)),
            transformers.EncoderRepetitionPenaltyLogitsProcessor(penalty, torch.tensor([source])),
        ),
        "no repeat": lambda: (NoRepeat(size := draw(SIZE)), transformers.NoRepeatNGramLogitsProcessor(size)),
        "no source repeat": lambda: (
            NoSourceRepeat(size := draw(SIZE)),
            transformers.EncoderNoRepeatNGramLogitsProcessor(size, torch.tensor([source])),
        ),
        "bias": lambda: (
            SequenceBias(
                list((biases := draw(st.dictionaries(PHRASE, st.floats(-9, 9, width=32), min_size=1))).items())
            ),
            transformers.SequenceBiasLogitsProcessor(biases),
        ),
        "banned": lambda: (
            Banned(phrases := draw(st.lists(PHRASE, min_size=1, max_size=6))),
            transformers.NoBadWordsLogitsProcessor([list(phrase) for phrase in phrases]),
        ),
        "suppressed": lambda: (
            Suppressed(tokens := draw(ENDS)),
            transformers.SuppressTokensLogitsProcessor(tokens),
        ),
        "suppressed first": lambda: (
            Suppressed(tokens := draw(ENDS), 1),
            transformers.SuppressTokensAtBeginLogitsProcessor(tokens, len(given_ids)),
        ),
        "min new": lambda: (
            Suppressed(tokens := draw(ENDS), least := draw(st.integers(1, 6))),
            transformers.MinNewTokensLengthLogitsProcessor(len(given_ids), least, tokens),
        ),
        "decay": lambda: (
            LengthDecay(start := draw(st.integers(0, 5)), factor := draw(st.floats(0.5, 4)), tokens := draw(ENDS)),
            transformers.ExponentialDecayLengthPenalty((start, factor), tokens, len(given_ids)),
        ),
    }
    ours, theirs = kinds[draw(st.sampled_from(sorted(kinds)))]()
    return ours, theirs, given_ids, produced, source


def begun(rule, given_ids, produced, source=()):
    """The rule in a row that has produced some tokens."""
    one = RowRules.begin((rule,), History(given_ids, np.array(source, np.int64), len(produced) + 1))
    for token in produced:
        one.advance(token)
    return one


@given(pairs(), st.integers(0, 999), st.booleans())
def test_a_rule_is_the_processor_of_transformers(pair, seed, has_barred):
    """The same scores for all tokens. For a few of them, in any order, the same as for all."""
    ours, theirs, given_ids, produced, source = pair
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 3, VOCAB).astype(np.float32)
    if has_barred:
        scores[rng.integers(0, VOCAB, 3)] = -np.inf
    expected = theirs(torch.tensor([given_ids + produced]), torch.tensor(scores[None]))[0].numpy()
    one = begun(ours, given_ids, produced, source)

    whole = scores.copy()
    one.apply(None, whole)
    assert np.array_equal(expected, whole)

    some = rng.permutation(VOCAB)[: rng.integers(1, VOCAB)]
    part = scores[some]
    one.apply(some, part)
    assert np.array_equal(whole[some], part)
    assert set(np.flatnonzero(whole > scores)) <= set(one.raised(VOCAB).tolist())
    assert set(np.flatnonzero(whole != scores)) <= set(one.touched(VOCAB).tolist())


@given(st.floats(-10, 10, width=32), st.floats(-10, 10, width=32), TOKENS, st.integers(0, 99))
def test_presence_and_frequency_count_the_answer(presence, frequency, produced, seed):
    """Each token loses `presence` if the answer has it, and `frequency` for each time. A prompt does not count."""
    scores = np.random.default_rng(seed).normal(0, 3, VOCAB).astype(np.float32)
    counts = np.bincount(produced, minlength=VOCAB)
    one = begun(PresencePenalty(presence, frequency), [1, 2, 3], produced)

    whole = scores.copy()
    one.apply(None, whole)

    assert scores - (presence * (counts > 0) + frequency * counts) == pytest.approx(whole, abs=1e-4)
    assert np.array_equal(scores[counts == 0], whole[counts == 0])
    assert set(np.flatnonzero(whole > scores)) <= set(one.raised(VOCAB).tolist())
    assert set(np.flatnonzero(whole != scores)) <= set(one.touched(VOCAB).tolist())


@given(st.lists(PHRASE, min_size=1, max_size=6), TOKENS)
def test_phrases_with_the_same_end_add_up(phrases, read):
    """Also the same phrase twice, which a dictionary of transformers cannot hold."""
    whole = np.zeros(VOCAB, np.float32)
    begun(SequenceBias([(phrase, 1.0) for phrase in phrases]), read, []).apply(None, whole)

    expected = np.zeros(VOCAB)
    for *before, last in phrases:
        expected[last] += read[len(read) - len(before) :] == before if len(before) <= len(read) else 0
    assert expected.tolist() == whole.tolist()


def test_a_sequence_as_long_as_its_source_does_not_come_again():
    """The shortest source, or answer, in which there is one. Of a shorter one nothing is barred."""
    for source, read, barred in (([5, 6], [5], [6]), ([5], [5], []), ([5, 6, 7], [9, 6], [7]), ([5, 6], [6], [])):
        history = History(read, np.array(source))
        assert barred == NoSourceRepeat(2).now(history).tolist()
    assert [[5], [], [6]] == [NoRepeat(2).now(History(read)).tolist() for read in ([5, 5], [5], [5, 6, 5])]


def test_a_phrase_is_banned_by_its_last_token():
    """Where what stands before it was read just now. A phrase of one token never comes."""
    rule = Banned([[5], [6, 7], [8, 6, 9]])
    for read, barred in (([1], [5]), ([6], [5, 7]), ([8, 6], [5, 7, 9]), ([8, 6, 1], [5]), ([], [5])):
        assert barred == rule.now(History(read)).tolist()


def test_a_decay_stays_finite():
    """However long the answer is: an infinite score would make every probability NaN."""
    one = begun(LengthDecay(0, 4.0, [3]), [1], [2] * 3000)
    scores = np.array([5, 1, 2, -4], np.float32)
    one.apply(None, scores)
    assert [5, 1, 2, pytest.approx(4 * MAX_GROWTH)] == scores.tolist()


def test_tokens_that_the_decoder_reads_and_never_writes_are_left_alone():
    """A prompt may hold ids beyond the logits."""
    for rule in (RepetitionPenalty(2.0), NoRepeat(1), SourceRepetitionPenalty(2.0), NoSourceRepeat(1)):
        scores = np.ones(VOCAB, np.float32)
        begun(rule, [1, 25], [], [2, 30]).apply(None, scores)
        assert 1 == np.count_nonzero(scores != 1)


END, NO_MOMENTS, FIRST = 7, 8, 9
# Apart by enough to be told apart when transformers has made them probabilities.
SCORES = st.lists(st.integers(-512, 512).map(lambda n: n / 64), min_size=VOCAB, max_size=VOCAB)


@given(st.lists(TOKEN, max_size=6), SCORES, st.none() | st.integers(0, 12))
def test_ctc_transcription_are_paired_as_whispers_are(produced, scores, latest):
    """Of all tokens, the same stay that WhisperTimeStampLogitsProcessor leaves."""
    config = transformers.GenerationConfig(
        no_timestamps_token_id=NO_MOMENTS, eos_token_id=END, max_initial_timestamp_index=latest, bos_token_id=0
    )
    theirs = transformers.WhisperTimeStampLogitsProcessor(config, begin_index=1)
    expected = theirs(torch.tensor([[0, *produced]]), torch.tensor([scores]))[0].numpy()

    actual = np.array(scores, np.float32)
    begun(Timestamps(FIRST, VOCAB - FIRST, latest, NO_MOMENTS, [END]), [0], produced).apply(None, actual)

    np.testing.assert_array_equal(expected, actual)


def test_only_what_is_asked_for_may_come():
    """All other tokens are barred, whether all are asked about or a few."""
    rule = begun(AllowedTokens([4, 2]), [0], [])
    every, few = np.zeros(6, np.float32), np.zeros(3, np.float32)
    rule.apply(None, every)
    rule.apply(np.array([5, 2, 0]), few)

    assert [2, 4] == np.flatnonzero(every == 0).tolist()
    assert [1] == np.flatnonzero(few == 0).tolist()


def test_a_fork_goes_its_own_way_in_as_much_room():
    """What one of both appends the other does not see, and a fork of a fork is no longer than its row may get."""
    row = History([1, 2], np.array([9]), room=3)
    row.append(5)
    fork = row.fork()
    again = fork.fork()
    row.append(6)
    fork.append(7)
    assert ([1, 2, 5, 6], [1, 2, 5, 7], [5]) == (row.read.tolist(), fork.read.tolist(), again.produced.tolist())
    assert (1, [9]) == (again.num_new, again.source.tolist())
    assert [5, 5, 5] == [len(each.ids) for each in (row, fork, again)]


def test_rules_are_closed_with_their_row():
    """Each of them, also behind one that has nothing to stop."""
    closed = []

    class Beside(RepetitionPenalty):
        """A rule that has work beside its lane."""

        def begin(self, history):
            """As the class above."""
            processor = super().begin(history)
            processor.close = lambda: closed.append(self)
            return processor

    rules = [Beside(2.0), Suppressed([3]), Beside(3.0)]
    RowRules.begin(rules, History([1])).close()
    assert [rules[0], rules[2]] == closed
