"""Laws of beginnings of prompts that are kept in blocks: the answers of a lane that keeps none, and nobody else's."""

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_served import BLOCK_BYTES, BLOCK_TOKENS, LARGE, LEAST, Served, mixture, needs
from paged_toy import MAX_TOTAL, VOCAB, PagedToy
from weft_server.engine import prefix_index
from weft_server.errors import LaneFailed
from weft_server.runtime.device import Device
from weft_server.runtime.session import Session
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Cancelled, Decoding

KEPT = 8
LONG = 40


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The toy, and a session of it."""
    toy = PagedToy(tmp_path_factory.mktemp("toy"), BLOCK_TOKENS)
    toy.session = Session(toy.path, 1, Device(in_place=False))
    return toy


def prompt_of(rng, length):
    """A prompt that nobody else has."""
    return [rng.randrange(3, VOCAB) for _ in range(length)]


def traffic(seed, num=60, most=LARGE):
    """Requests of all kinds, whose prompts begin with one of three beginnings; each with its salt."""
    rng = random.Random(seed)
    begins = [prompt_of(rng, length) for length in (9, 16, 26)]
    for prompt, decoding, streams in mixture(seed, num):
        whole = (rng.choice(begins) + prompt)[: rng.randrange(1, LONG)]
        shorter = replace(decoding, max_new_tokens=min(decoding.max_new_tokens, MAX_TOTAL - len(whole)))
        if needs(whole, shorter) <= most:
            yield whole, shorter, streams, rng.choice("ab")


def asked(lane, requests):
    """Let these wait in a lane."""
    return [
        lane.ask(prompt, decoding, wants_tokens=streams, wants_scores=True, cache_salt=salt)
        for prompt, decoding, streams, salt in requests
    ]


def answers(lane):
    """What everybody was given, and all outputs of those that have several."""
    return list(lane.given.values()), [lane.outputs[sequence] for sequence in lane.given]


async def served(toy, requests, num_blocks=LARGE, **more):
    """All of these at once."""
    lane = Served(toy, num_blocks, **more)
    asked(lane, requests)
    return lane.run()


async def one_by_one(lane, prompts, salt="", max_new=4):
    """Ask a lane these, one after the other; how many tokens of each were kept. Each answer is the definition's."""
    found = []
    for prompt in prompts:
        sequence = lane.ask(prompt, Decoding(max_new), cache_salt=salt)
        lane.run()
        found.append(sequence.num_cached_tokens)
    return found


@pytest.mark.parametrize(("seed", "num_blocks", "max_kept"), [(0, LARGE, 100), (1, LARGE, KEPT), (2, LEAST + 3, KEPT)])
def test_every_kind_is_answered_as_without_a_cache(toy, seed, num_blocks, max_kept):
    """Draws, rules, searches, alternatives and streams, parked or not: the same tokens and scores, to the bit."""
    requests = list(traffic(seed, most=num_blocks))
    plain = asyncio.run(served(toy, requests, num_blocks, most_read=16))
    cached = asyncio.run(served(toy, requests, num_blocks, most_read=16, max_kept=max_kept))
    assert answers(plain) == answers(cached)
    assert cached.metrics.prefix_cache_tokens.value > 100
    assert (cached.metrics.prefix_cache_evictions.value > 0) == (max_kept == KEPT)
    assert (cached.metrics.preemptions.value > 0) == (num_blocks < LARGE)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_block_is_lost_whoever_shares_and_goes(toy, data):
    """Over any order of coming, cancelling and failing, after each step: every block is free, held or kept.

    Counts are those of the tables, and the cache finds just what the pool keeps. `Served.step` looks at all of them.
    """

    async def run():
        lane = Served(toy, LEAST + 3, num_slots=4, max_kept=data.draw(st.integers(1, 12)))
        waiting = list(traffic(data.draw(st.integers(0, 5)), 30, LEAST + 3))
        while waiting:
            asked(lane, waiting[:3])
            del waiting[:3]
            for _ in range(data.draw(st.integers(1, 4))):
                lane.step()
            admitted = [each for each in lane.given if each.lane is not None and each not in lane.outcomes]
            for sequence in admitted[: data.draw(st.integers(0, 2))]:
                lane.lane.gone.append((sequence, Cancelled()))
        if data.draw(st.booleans()):
            lane.run()
            assert lane.runner.pool.num_kept == len(lane.runner.pool.kept_blocks)
        else:
            for delivery in lane.lane.fail(lambda: LaneFailed("STEP_FAILED", "broken")):
                lane.note(delivery)
            lane.check()
            assert (0, 0) == (lane.runner.pool.num_held, lane.runner.pool.num_kept)
        assert lane.runner.pool.size.num_blocks == lane.runner.pool.num_free

    asyncio.run(run())


def test_a_beginning_is_kept_from_its_second_sight_on(toy):
    """The first sight marks it, the second keeps it, the third finds it. At least one token is always read."""
    rng = random.Random(1)
    prompt, end = prompt_of(rng, 10), prompt_of(rng, 9)

    async def run():
        lane = Served(toy, max_kept=KEPT)
        assert [0, 0, 8, 8] == await one_by_one(lane, [prompt] * 4)
        # Longer ones that begin so, one that ends with the last block, and ones that differ in it or at once.
        others = [prompt + end, prompt[:9], prompt[:8], prompt[:7] + end, end + prompt]
        assert [8, 8, 4, 4, 0] == await one_by_one(lane, others)
        counters = lane.metrics.counters
        return [counters["prefix_cache_lookups_total", result].value for result in ("hit", "miss")]

    assert [6, 3] == asyncio.run(run())


def test_what_is_found_is_not_read_again(toy):
    """A prompt of which all but two tokens are known is one piece of two tokens, behind what is known."""

    async def run():
        lane, pieces = Served(toy, max_kept=KEPT), []
        run = lane.runner.run

        def watched(num_rows, read):
            pieces.extend((piece.token_ids.tolist(), int(lane.slots.past_lengths[piece.slot])) for piece in read)
            return run(num_rows, read)

        lane.runner.run = watched
        await one_by_one(lane, [list(range(3, 13))] * 3)
        return pieces

    assert [(list(range(3, 13)), 0)] * 2 + [([11, 12], 8)] == asyncio.run(run())


def test_rows_read_the_same_blocks(toy):
    """Four that come together with one beginning hold it once, and each its own end."""
    begin = list(range(3, 19))

    async def run():
        lane = Served(toy, max_kept=KEPT)
        await one_by_one(lane, [[*begin, 20]] * 2)
        sequences = [lane.ask([*begin, 20 + index], Decoding(6, 6)) for index in range(4)]
        lane.step()
        tables = [lane.runner.pool.tables[sequence.slot] for sequence in sequences]
        assert [lane.runner.pool.kept_blocks] * 4 == [sorted(table[:4]) for table in tables]
        assert [5] * 4 == [len(table) for table in tables]
        assert (4, 4) == (lane.runner.pool.num_held, lane.runner.pool.num_kept)
        lane.run()
        return lane.answers[-4:]

    assert [toy.greedy([*begin, 20 + index], 6) for index in range(4)] == asyncio.run(run())


def test_who_begins_with_kept_blocks_needs_fewer(toy):
    """Where three whole prompts would not fit, three that share their beginning run together."""
    begin = prompt_of(random.Random(2), 36)

    async def run(max_kept):
        lane = Served(toy, LEAST, max_kept=max_kept)
        await one_by_one(lane, [[*begin, 3]] * 2)
        for index in range(3):
            lane.ask([*begin, index + 3], Decoding(3, 3))
        lane.step()
        num_together = lane.lane.rows.num_held
        lane.run()
        return num_together, lane.metrics.preemptions.value

    assert (1, 0) == asyncio.run(run(0))
    assert (3, 0) == asyncio.run(run(12))


def test_a_beginning_that_is_too_long_keeps_what_fits(toy):
    """It drops all others, and none of its own blocks."""
    rng = random.Random(3)

    async def run():
        lane = Served(toy, max_kept=4)
        await one_by_one(lane, [prompt_of(rng, 10)] * 2)
        return await one_by_one(lane, [prompt_of(random.Random(4), 30)] * 4)

    assert [0, 0, 16, 16] == asyncio.run(run())


def test_what_nobody_asked_for_the_longest_goes_first(toy):
    """And of one beginning its end goes first, so what is left is found."""
    rng = random.Random(5)
    first, second, third = (prompt_of(rng, length) for length in (13, 5, 9))

    async def run():
        lane = Served(toy, max_kept=4)
        for prompt in (first, second, first, third):
            await one_by_one(lane, [prompt] * 2)
        return await one_by_one(lane, [third, first, second])

    assert [8, 8, 0] == asyncio.run(run())


def test_a_block_that_is_dropped_stays_with_who_reads_it(toy):
    """Its rows go on as if it were theirs, and it is free when the last of them ends."""
    rng = random.Random(6)
    prompt, other = prompt_of(rng, 17), prompt_of(rng, 17)

    async def run():
        lane = Served(toy, max_kept=4)
        await one_by_one(lane, [prompt] * 2)
        reader = lane.ask(prompt, Decoding(30, 30))
        lane.step()
        held = lane.runner.pool.tables[reader.slot][:4]
        for _ in range(2):
            lane.ask(other, Decoding(1))
            lane.step()
        assert set(held).isdisjoint(lane.runner.pool.kept_blocks)
        assert held == lane.runner.pool.tables[reader.slot][:4]
        lane.run()
        return [token for token, _ in lane.given[reader]]

    assert toy.greedy(prompt, 30) == asyncio.run(run())[:30]


def test_a_tenant_finds_nothing_of_anothers(toy):
    """One that sends what another has sent, as often as it likes, reads it itself, until it has sent it twice."""
    prompt = prompt_of(random.Random(7), 18)

    async def run():
        lane = Served(toy, max_kept=KEPT)
        assert [0, 0, 16] == await one_by_one(lane, [prompt] * 3, "tenant\nsalt")
        assert [0, 0, 16] == await one_by_one(lane, [prompt] * 3, "other\nsalt")
        assert [0, 0, 16] == await one_by_one(lane, [prompt] * 3, "tenant\npepper")

    asyncio.run(run())


def test_a_tenant_that_floods_takes_no_kept_block(toy):
    """Whatever it sends once, and however many rows it fills and parks: what another has kept stays, as on the host."""
    rng = random.Random(8)
    prompt = prompt_of(rng, 18)

    async def run():
        lane = Served(toy, LEAST, max_kept=4)
        await one_by_one(lane, [prompt] * 2, "good")
        for _ in range(60):
            lane.ask(prompt_of(rng, rng.randrange(1, 40)), Decoding(20, 20), cache_salt="bad")
        lane.run()
        assert lane.metrics.preemptions.value > 0
        assert 0 == lane.metrics.prefix_cache_evictions.value
        assert [16] == await one_by_one(lane, [prompt], "good")

    asyncio.run(run())


@pytest.mark.parametrize("poison", [lambda _: b"\1" * 16, lambda content: content[:16]])
def test_equal_digests_never_give_the_wrong_block(toy, monkeypatch, poison):
    """If digests said nothing, or not what stood before, answers would still be those of these very prompts."""
    monkeypatch.setattr(prefix_index, "chain", lambda contents, _: [poison(content) for content in contents])
    rng = random.Random(9)
    requests = [
        ([rng.choice([3, 4]) for _ in range(rng.randrange(5, 12))], Decoding(4), False, rng.choice("ab"))
        for _ in range(60)
    ]
    lane = asyncio.run(served(toy, requests, max_kept=2))
    assert [toy.greedy(prompt, 4) for prompt, *_ in requests] == lane.answers
    assert lane.metrics.prefix_cache_tokens.value > 0


def test_who_is_parked_finds_its_beginning_and_keeps_nothing(toy):
    """It is no second sight of its own prompt, and its usage says what was found when it came."""
    rng = random.Random(10)
    first, second = prompt_of(rng, 20), prompt_of(rng, 20)

    async def run():
        lane = Served(toy, LEAST, num_slots=2, max_kept=12)
        asked(lane, [(first, Decoding(40, 40), False, ""), (second, Decoding(40, 40), False, "")])
        lane.run()
        assert lane.metrics.preemptions.value > 0
        assert (0, 0) == (lane.runner.pool.num_kept, lane.metrics.prefix_cache_tokens.value)
        await one_by_one(lane, [second])
        # Now it is kept, and who is parked and goes on reads from its end.
        pieces, run = [], lane.runner.run

        def watched(num_rows, read):
            pieces.extend((int(lane.slots.past_lengths[piece.slot]), len(piece.token_ids)) for piece in read)
            return run(num_rows, read)

        lane.runner.run = watched
        before = lane.metrics.preemptions.value
        one, other = asked(lane, [(first, Decoding(40, 40), False, ""), (second, Decoding(40, 40), False, "")])
        lane.run()
        assert lane.metrics.preemptions.value > before
        assert (0, 16) == (one.num_cached_tokens, other.num_cached_tokens)
        return pieces

    pieces = asyncio.run(run())
    assert [(0, 20), (16, 4)] == pieces[:2]
    assert {20} == {past for past, _ in pieces[2:]}


def test_a_lane_holds_on_to_nobody_who_went(toy):
    """Neither a prompt that ended, nor one that was cancelled in the middle of it, or whose lane failed."""

    async def run():
        lane = Served(toy, max_kept=KEPT, most_read=8)
        for prompt in ([3] * 30, [4] * 30):
            for _ in range(2):
                sequence = lane.ask(prompt, Decoding(4))
                lane.step()
                lane.lane.gone.append((sequence, Cancelled()))
                lane.step()
        assert {} == lane.cache.trails
        assert lane.cache.last is None
        await one_by_one(lane, [[5] * 30] * 2)
        assert {} == lane.cache.trails
        assert lane.cache.last is None
        lane.ask([6] * 30, Decoding(4))
        lane.step()
        lane.lane.fail(lambda: LaneFailed("STEP_FAILED", "broken"))
        assert {} == lane.cache.trails
        assert lane.cache.last is None

    asyncio.run(run())


def test_rows_of_one_request_begin_with_kept_blocks(toy):
    """A search and several draws share what is kept, and are what they are without."""
    prompt = prompt_of(random.Random(11), 18)
    kinds = [{"beams": Beams(3)}, {"sampling": Sampling(9.0, 0, 1.0, seed=5), "num_outputs": 3}]
    requests = [(prompt, Decoding(12, 12, **kind), False, "") for kind in [*kinds, {}, *kinds, *kinds]]

    async def run(max_kept):
        lane = Served(toy, max_kept=max_kept)
        found = []
        for request in requests:
            (sequence,) = asked(lane, [request])
            lane.run()
            found.append(sequence.num_cached_tokens)
        return answers(lane), found

    plain, _ = asyncio.run(run(0))
    cached, found = asyncio.run(run(KEPT))
    assert plain == cached
    assert [0, 0, *[16] * 5] == found


def test_the_bytes_are_those_of_the_blocks(toy):
    """What is kept is on the page of metrics, and gone when a lane has failed."""

    async def run():
        lane = Served(toy, max_kept=KEPT)
        await one_by_one(lane, [list(range(3, 20))] * 2)
        assert 4 * BLOCK_BYTES == lane.metrics.prefix_cache_bytes.value
        lane.lane.fail(lambda: LaneFailed("STEP_FAILED", "broken"))
        return lane.metrics.prefix_cache_bytes.value

    assert 0 == asyncio.run(run())


def test_a_kept_block_that_nobody_finds_is_noticed(toy):
    """What the pool keeps, and what can be found, must agree."""

    async def run():
        lane = Served(toy, max_kept=KEPT)
        await one_by_one(lane, [list(range(3, 20))] * 2)
        lane.runner.pool.drop(lane.runner.pool.kept_blocks[0])
        with pytest.raises(AssertionError, match=r"\[4/8 blocks kept\]> finds .* This is a bug\."):
            lane.cache.check_integrity()

    asyncio.run(run())
