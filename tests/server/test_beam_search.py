"""Laws of beam search: every answer is the plain search's, alone and in any crowd, and copies are as few as can be."""

import asyncio
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plain_beams import search
from running import Running
from toy import END, NUM_CANDIDATES, START, Toy
from weft_server.runtime.session import Session
from weft_server.sampling.beam_search import BeamSearches, num_decisive, num_kept
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Decoding, EarlyStopping, FinishReason

STOPPING = {False: EarlyStopping.HEURISTIC, True: EarlyStopping.FULL, "never": EarlyStopping.NEVER}
NEAR = 1e-4


@pytest.fixture(scope="module", params=[False, True], ids=["recurrent", "recurrent and memory"])
def toy(tmp_path_factory, request):
    """The toy and its two sessions."""
    toy = Toy(tmp_path_factory.mktemp("toy"), attends=request.param)
    toy.encoder, toy.decoder = Session(toy.encoder_path, 1), Session(toy.path, 1)
    return toy


def plain(toy, source, decoding, prefix=(), num_fed=None):
    """What the plain search makes of the toy's definition. Lengths count the prefix, unless `num_fed` says how many."""
    memory = toy.embedding[source]

    def log_probs_of(token_ids):
        state = np.tanh(memory[0])
        for token_id in (START, *prefix, *token_ids):
            state = toy.next_state(state, token_id, memory)
        logits = (state @ toy.head).astype(np.float64)
        return (logits - np.log(np.exp(logits).sum())).astype(np.float32)

    stopping = {stopping: name for name, stopping in STOPPING.items()}
    return search(
        log_probs_of,
        decoding.beams.num_beams,
        end_ids=[END],
        max_new=decoding.max_new_tokens,
        min_new=decoding.min_new_tokens,
        length_penalty=decoding.beams.length_penalty,
        early_stopping=stopping[decoding.beams.early_stopping],
        num_fed=len(prefix) if num_fed is None else num_fed,
    )


def behind(toy, source, decoding, prefix):
    """What the plain search makes of it where an answer begins with given tokens: it is fed them, and counts none."""
    given = decoding.forced_ids
    rest = replace(
        decoding,
        max_new_tokens=decoding.max_new_tokens - len(given),
        min_new_tokens=max(decoding.min_new_tokens - len(given), 0),
    )
    return plain(toy, source, rest, (*prefix, *given), num_fed=0)


def drawn(rng):
    """A random beam search that the toy's candidates can decide."""
    num_beams = rng.choice([1, 2, 3, 4])
    beams = Beams(num_beams, rng.choice([-1.0, 0.0, 0.6, 1.0, 2.0]), rng.choice(list(EarlyStopping)))
    max_new = rng.randrange(1, 12)
    min_new = rng.choice([0, 0, rng.randrange(max_new + 1)])
    return Decoding(max_new, min_new, beams=beams, num_outputs=rng.randrange(1, num_beams + 1))


def test_the_toys_candidates_decide_four_beams():
    """So `drawn` goes as far as it may."""
    assert NUM_CANDIDATES >= num_decisive(4, 1)


def test_answers_are_the_plain_searchs_whatever_shares_the_batch(toy):
    """Beside other searches of all widths, greedy and sampled rows: tokens, scores and reasons."""

    async def run():
        rng, num_near = random.Random(5), 0
        async with Running(toy, num_slots=7, num_lanes=2) as running:
            asked, beside = [], []
            for index in range(150):
                source = [rng.randrange(3, 50) for _ in range(rng.randrange(1, 9))]
                prefix = tuple(rng.randrange(50) for _ in range(rng.choice([0, 0, 1, 3])))
                decoding = drawn(rng)
                asked.append((source, decoding, prefix, running.submit(source, decoding, prefix_ids=prefix)))
                crowd = Decoding(rng.randrange(1, 9), sampling=rng.choice([None, Sampling(1.0, 0, 0.9, index)]))
                beside.append(running.submit(source, crowd, wants_tokens=rng.random() < 0.3))
                if rng.random() < 0.2:
                    await asyncio.sleep(0.001)
            for source, decoding, prefix, sequence in asked:
                reason = await sequence.reply.done()
                outputs = sequence.reply.outputs
                expected = plain(toy, source, decoding, prefix)
                assert reason is outputs[0].reason
                assert decoding.num_outputs >= len(outputs) >= 1
                if expected.margin < NEAR:
                    num_near += 1
                    continue
                wanted = expected.answers[: decoding.num_outputs]
                assert [one.token_ids for one in wanted] == [one.token_ids for one in outputs]
                assert [pytest.approx(one.score, rel=1e-5, abs=1e-5) for one in wanted] == [
                    one.score for one in outputs
                ]
                for one in outputs:
                    stopped = one.token_ids[-1] == END
                    assert one.reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
                    total = one.score * (len(prefix) + len(one.token_ids)) ** decoding.beams.length_penalty
                    assert pytest.approx(total, rel=1e-4) == sum(one.log_probs)
            for sequence in beside:
                await sequence.reply.done()
        assert num_near < 15

    asyncio.run(run())


def test_a_prefix_counts_in_no_score(toy):
    """Neither in the sum nor in the length, nor does what is fed before it: the search begins behind it."""

    async def run():
        rng, num_near, num_asked = random.Random(8), 0, 60
        async with Running(toy, num_slots=8, num_lanes=1) as running:
            asked = []
            for _ in range(num_asked):
                source = [rng.randrange(3, 50) for _ in range(rng.randrange(1, 9))]
                fed = tuple(rng.randrange(50) for _ in range(rng.choice([0, 2])))
                given = tuple(rng.randrange(3, 50) for _ in range(rng.randrange(1, 4)))
                decoding = drawn(rng)
                decoding = replace(decoding, max_new_tokens=decoding.max_new_tokens + len(given))
                decoding = replace(decoding, forced_ids=given, num_unscored=len(given))
                asked.append((source, decoding, fed, running.submit(source, decoding, prefix_ids=fed)))
            for source, decoding, fed, sequence in asked:
                await sequence.reply.done()
                outputs = sequence.reply.outputs
                expected = behind(toy, source, decoding, fed)
                if expected.margin < NEAR:
                    num_near += 1
                    continue
                wanted = expected.answers[: decoding.num_outputs]
                given = list(decoding.forced_ids)
                assert [given + one.token_ids for one in wanted] == [one.token_ids for one in outputs]
                scores = [pytest.approx(one.score, rel=1e-5, abs=1e-5) for one in wanted]
                assert scores == [one.score for one in outputs]
        assert num_near < num_asked / 10

    asyncio.run(run())


def test_an_answer_that_is_all_prefix_has_a_score_of_0(toy):
    """It has no token that counts, whatever the length penalty is."""

    async def run():
        async with Running(toy) as running:
            for length_penalty in (-1.0, 0.0, 0.5, 2.0):
                beams = Beams(2, length_penalty)
                decoding = Decoding(2, beams=beams, forced_ids=(5, 6), num_unscored=2)
                sequence = running.submit([4, 5], decoding)
                await sequence.reply.done()
                assert [([5, 6], 0)] == [(one.token_ids, one.score) for one in sequence.reply.outputs]

    asyncio.run(run())


def test_beams_are_bit_identical_alone_and_crowded(toy):
    """Tokens, scores and log-probabilities, whatever the slots, the lanes and the order of arrival."""

    async def answers(num_slots, num_lanes, pause):
        rng, found, others = random.Random(6), [], []
        async with Running(toy, num_slots, num_lanes) as running:
            for _ in range(50):
                source = [rng.randrange(3, 50) for _ in range(5)]
                sequence = running.submit(source, drawn(rng))
                found.append(sequence)
                others.append(running.submit(source, Decoding(rng.randrange(1, 9))))
                if pause:
                    await sequence.reply.done()
            for sequence in [*found, *others]:
                await sequence.reply.done()
        return [sequence.reply.outputs for sequence in found]

    async def run():
        assert await answers(4, 1, pause=True) == await answers(17, 2, pause=False)

    asyncio.run(run())


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 3), st.sampled_from([False, True, "never"]))
def test_searches_are_the_plain_one_over_any_numbers(seed, width, num_ends, stopping):
    """Several at once, begun and ended at different times, over random rows: each is what it is alone."""
    rng = np.random.default_rng(seed)
    vocab, end_ids = 60, list(range(num_ends))
    kept = num_kept(width, num_ends)
    searches, running, done = BeamSearches(width, kept, 5), {}, []
    settings = [
        (
            float(rng.choice([-0.5, 0.0, 0.7, 1.0, 1.5])),
            int(rng.integers(1, 9)),
            int(rng.integers(2**31)),
            int(rng.integers(3)),
        )
        for _ in range(5)
    ]

    def row(key, token_ids):
        logits = np.random.default_rng([key, *token_ids]).normal(0, 2, vocab)
        return (logits - np.log(np.exp(logits).sum())).astype(np.float32)

    waiting = list(range(5))
    while waiting or running:
        if waiting and (not running or rng.random() < 0.5):
            number = waiting.pop()
            length_penalty, max_new, _, num_fed = settings[number]
            index = searches.begin(
                max_new=max_new,
                length=num_fed,
                length_penalty=length_penalty,
                ends_full=stopping is True,
                hopes=stopping == "never",
            )
            running[index] = number, [[] for _ in range(width)], []
        which = np.array(sorted(running))
        rows = np.array([[row(settings[running[index][0]][2], beam) for beam in running[index][1]] for index in which])
        ids = np.argsort(-rows, axis=2, kind="stable")[:, :, :kept]
        scores = np.take_along_axis(rows, ids, 2)
        chosen = searches.advance(which, scores, np.isin(ids, end_ids))
        for place, index in enumerate(which.tolist()):
            number, beams, found = running[index]
            longer = [[[*beam, int(token)] for token in row] for beam, row in zip(beams, ids[place], strict=True)]
            best = [
                longer[beam][pick]
                for beam, pick in zip(chosen.best_parents[place], chosen.best_picks[place], strict=True)
            ]
            entries = chosen.places[place, : chosen.num_found[place]].tolist()
            found = [found[entry] if entry < width else best[entry - width] for entry in entries]
            beams = [longer[beam][pick] for beam, pick in zip(chosen.parents[place], chosen.picks[place], strict=True)]
            running[index] = number, beams, found
        for place, index in reversed(list(enumerate(which.tolist()))):
            if chosen.done[place]:
                number, _, found = running.pop(index)
                done.append((number, found, searches.scores(index)))
                searches.remove(index)
                if index != searches.num:
                    running[index] = running.pop(searches.num)

    for number, found, scores in done:
        length_penalty, max_new, key, num_fed = settings[number]
        expected = search(
            lambda token_ids, key=key: row(key, token_ids),
            width,
            end_ids=end_ids,
            max_new=max_new,
            length_penalty=length_penalty,
            early_stopping=stopping,
            num_fed=num_fed,
        )
        if expected.margin > NEAR:
            assert [one.token_ids for one in expected.answers] == found
            assert [pytest.approx(one.score, abs=1e-5) for one in expected.answers] == scores


@pytest.mark.parametrize("length_penalty", [-10, 10])
def test_scores_of_long_answers_are_told_apart(length_penalty):
    """Also where a float32 does not hold them: length^10 overflows it, and so do scores, or all of them are 0."""
    searches = BeamSearches(2, num_kept(2, 1), 1)
    searches.begin(max_new=2, length_penalty=length_penalty, ends_full=False, hopes=False, length=100_000)
    which, end = np.zeros(1, np.int64), np.array([[[False, True, False]] * 2])
    searches.advance(which, np.array([[[-1, -2, -3]] * 2], np.float32), end)
    chosen = searches.advance(which, np.array([[[-0.5, -1.5, -8]] * 2], np.float32), end)

    # What ended first, with a sum of -2, stands behind -1.5 and before -2.5.
    assert (2, [2, 0], True) == (chosen.num_found[0], chosen.places[0].tolist(), chosen.done[0])
    assert np.isfinite(np.array(searches.scores(0), np.float32)).all()


@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 5), st.sampled_from([False, True, "never"]))
def test_a_row_s_candidates_decide_what_the_whole_row_does(seed, width, num_ends, stopping):
    """A few of each row, the most probable ones: beams, answers, scores and ends are those of whole rows, ties too."""
    rng = np.random.default_rng(seed)
    vocab, num = 24, num_decisive(width, num_ends)
    kept, max_new = num_kept(width, num_ends), int(rng.integers(2, 9))
    whole, few = (BeamSearches(width, kept, 1) for _ in range(2))
    for searches in (whole, few):
        searches.begin(max_new=max_new, length_penalty=0.7, ends_full=stopping is True, hopes=stopping == "never")
    end_ids = rng.permutation(vocab)[:num_ends]
    which, done = np.zeros(1, np.int64), False
    while not done:
        # Few different numbers, so that many tie. Sometimes all ends are better than all else.
        scores = -rng.integers(0, 6, (1, width, vocab)).astype(np.float32)
        scores[..., end_ids] += rng.choice([-6, 0, 6])
        ids = np.argsort(-scores, axis=2, kind="stable")
        scores, ends = np.take_along_axis(scores, ids, 2), np.isin(ids, end_ids)
        expected = whole.advance(which, scores, ends)
        found = few.advance(which, scores[..., :num], ends[..., :num])
        for one, other in zip(expected, found, strict=True):
            assert one.tolist() == other.tolist()
        assert whole.scores(0) == few.scores(0)
        done = bool(expected.done[0])


def test_a_beam_that_can_only_equal_the_worst_answer_is_given_up():
    """It was found later, so it would stand behind it. One that is better goes on."""
    for going, is_done in ((-1.0, True), (-0.5, False)):
        searches = BeamSearches(1, 2, 1)
        searches.begin(max_new=5, length_penalty=0.0, ends_full=False, hopes=False)
        log_probs = np.array([[sorted((-1.0, going), reverse=True)]], np.float32)
        ends = log_probs == -1.0
        ends[0, 0, 1] &= going != -1.0
        assert [is_done] == searches.advance(np.array([0]), log_probs, ends).done.tolist()
