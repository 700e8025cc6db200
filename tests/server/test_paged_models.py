"""A whole server's model over a cache in blocks, on the CPU as if its memory were far: it answers as one over slots."""

import asyncio

import numpy as np
import pytest
from structlog.testing import capture_logs

from loaded import Loaded, ask, refusal_of
from paged_bundles import BLOCK_TOKENS, export_both, gigabytes_of
from weft_proto.v1 import common_pb2
from weft_server.bundle.load import load_bundle
from weft_server.config import read_config
from weft_server.errors import BundleError, DeadlineExpired, LaneFailed
from weft_server.loading import build
from weft_server.loading.memory_check import lane_memory_needs
from weft_server.loading.paged_lanes import block_bytes
from weft_server.runtime.buffers import FarRows
from weft_server.runtime.cuda import best_only
from weft_server.runtime.device import Device
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Cancelled, Decoding, FinishReason, Sequence
from weft_server.source import Ids

pytestmark = pytest.mark.slow
FAR = Device(in_place=False)
# Two tokens whose log-probabilities differ by less are as good as each other at fp16.
TIE = 0.02


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A generator at fp16, with slots and with blocks."""
    return export_both("tiny-generate", tmp_path_factory.mktemp("both"))


@pytest.fixture(autouse=True)
def _far(monkeypatch):
    monkeypatch.setattr(build, "devices_of", lambda _: [FAR])


def requests(text, num=30):
    """Prompts of all lengths, each with how many new tokens it may have."""
    rng = np.random.default_rng(7)
    for _ in range(num):
        prompt = rng.integers(0, text.source_vocab_size, rng.integers(1, text.max_total_tokens * 2 // 3))
        yield prompt, int(rng.integers(1, min(text.max_new_tokens, text.max_total_tokens - len(prompt)) + 1))


async def submitted(model, decode, streams=lambda _: False, num_top_tokens=2):
    """All requests at once, decoded as told; their sequences, when all have ended."""
    sequences = []
    for index, (prompt, max_new) in enumerate(requests(model.manifest.text)):
        model.engine.reserve()
        sequence = Sequence(
            str(index), Ids(prompt), decode(index, max_new), wants_tokens=streams(index), num_top_tokens=num_top_tokens
        )
        model.engine.submit(sequence)
        sequences.append(sequence)
    for sequence in sequences:
        await sequence.reply.done()
    return sequences


async def greedy_answers(directory, **settings):
    """What a model answers when all come at once, some as streams; and how many were parked."""
    async with Loaded(directory, lanes=1, threads=1, **{"slots": 8} | settings) as model:
        sequences = await submitted(model, lambda _, max_new: Decoding(max_new), lambda index: index % 3 == 0)
        return [sequence.reply for sequence in sequences], model.metrics.preemptions.value


def share_alike(replies, others):
    """The share of answers that are equal. Any others part at a tie."""
    parts = [
        next((place for place, (a, b) in enumerate(zip(one.token_ids, other.token_ids, strict=True)) if a != b), None)
        for one, other in zip(replies, others, strict=True)
    ]
    for reply in (*replies, *others):
        assert len(reply.token_ids) == len(reply.tops)
    for place, one, other in zip(parts, replies, others, strict=True):
        if place is not None:
            assert max(abs(np.subtract(*reply.tops[place].log_probs)) for reply in (one, other)) < TIE
    return parts.count(None) / len(parts)


def least(directory):
    """The smallest memory that takes this model."""
    longest = load_bundle(directory).manifest.text.max_total_tokens
    return gigabytes_of(directory, -(-longest // BLOCK_TOKENS))


def test_blocks_answer_as_slots_do(both):
    """Whoever is beside whom: greedy answers are those of the same checkpoint over slots, but for ties."""
    slotted, paged = both
    expected, _ = asyncio.run(greedy_answers(slotted))
    answers, num_parked = asyncio.run(greedy_answers(paged))
    assert share_alike(expected, answers) > 0.9
    assert 0 == num_parked


def test_a_small_memory_answers_as_a_large_one(both):
    """With room for one longest sequence only, eight rows park each other again and again, and nobody can tell."""
    _, paged = both
    expected, _ = asyncio.run(greedy_answers(paged))
    answers, num_parked = asyncio.run(greedy_answers(paged, cache_gb=least(paged)))
    assert share_alike(expected, answers) > 0.9
    assert num_parked > 3


def test_all_kinds_of_requests_end_in_a_small_memory(both):
    """Draws, several answers, alternatives and searches: each has the answers that it asked for, of the right sizes."""
    _, paged = both
    kinds = (
        lambda seed: {"sampling": Sampling(5.0, 0, 1.0, seed)},
        lambda seed: {"sampling": Sampling(5.0, 0, 1.0, seed), "num_outputs": 2},
        lambda _: {"beams": Beams(3)},
        lambda _: {"alternatives": True, "num_outputs": 2},
    )

    async def run():
        async with Loaded(paged, lanes=1, threads=1, slots=8, cache_gb=3 * least(paged)) as model:
            sequences = await submitted(
                model, lambda index, max_new: Decoding(max_new, **kinds[index % len(kinds)](index))
            )
            return sequences, model.metrics.preemptions.value

    sequences, num_parked = asyncio.run(run())
    assert num_parked > 0
    for sequence in sequences:
        answers = sequence.reply.outputs or [sequence.reply]
        assert sequence.decoding.num_outputs == len(answers)
        assert all(1 <= len(each.token_ids) <= sequence.decoding.max_new_tokens for each in answers)


@pytest.mark.parametrize("is_paged", [True, False], ids=["paged", "slots"])
def test_draws_are_those_of_all_logits_and_ask_for_few_rows(both, monkeypatch, is_paged):
    """At each request's own temperature, whoever is beside it, prompts and steps: few rows of logits are fetched.

    Where a run does not say what all tokens weigh, the same tokens are drawn, and many rows are fetched for them.
    """
    directory, fetched, fetch = both[is_paged], [], FarRows.__getitem__
    monkeypatch.setattr(FarRows, "__getitem__", lambda rows, row: fetched.append(row) or fetch(rows, row))
    temperatures = (0.3, 0.7, 1.0, 1.7)

    async def run():
        async with Loaded(directory, lanes=1, threads=1, slots=8) as model:
            fetched.clear()
            sequences = await submitted(
                model,
                lambda index, max_new: Decoding(max_new, sampling=Sampling(temperatures[index % 4], 0, 0.9, index)),
                num_top_tokens=0,
            )
            return [list(sequence.reply.token_ids) for sequence in sequences], len(fetched)

    told, num_told = asyncio.run(run())
    monkeypatch.setattr(best_only, "drawing", lambda model: model)
    plain, num_plain = asyncio.run(run())
    assert plain == told
    assert num_told < num_plain // 20, (num_told, num_plain)
    assert num_plain > 30


def test_whoever_goes_or_is_late_leaves_no_block(both):
    """Callers that go, deadlines that pass and a drain: at the end all blocks are free."""
    _, paged = both

    async def run():
        async with Loaded(paged, lanes=1, threads=1, slots=8, cache_gb=least(paged)) as model:
            sequences = []
            for index, (prompt, max_new) in enumerate(requests(model.manifest.text, 40)):
                model.engine.reserve()
                deadline = 0.0 if index % 7 == 3 else float("inf")
                sequences.append(Sequence(str(index), Ids(prompt), Decoding(max_new, max_new), deadline=deadline))
                model.engine.submit(sequences[-1])
            for sequence in sequences[::3]:
                await asyncio.sleep(0)
                model.engine.cancel(sequence)
            ends = [await _end(sequence) for sequence in sequences[:30]]
            model.engine.cancel_all(Cancelled)
            ends += [await _end(sequence) for sequence in sequences[30:]]
            (lane,) = model.engine.lanes
        return ends, lane.runner.pool

    ends, pool = asyncio.run(run())
    pool.check_integrity()
    assert 40 == len(ends)
    assert {Cancelled, DeadlineExpired} <= {type(end) for end in ends}
    assert 0 == pool.num_held


async def _end(sequence):
    try:
        return await sequence.reply.done()
    except Exception as error:  # noqa: BLE001 - however it ended
        return error


def test_a_lane_that_fails_is_made_anew(both):
    """Its requests end, and the next one is answered by other blocks."""
    _, paged = both

    async def run():
        async with Loaded(paged, lanes=1, threads=1, slots=4) as model:
            (first,) = model.engine.lanes
            first.runner.run = None
            refused = await _end(await _asked(model))
            answered = await _end(await _asked(model))
            return refused, answered, first, model.engine.lanes[0]

    refused, answered, first, second = asyncio.run(run())
    assert isinstance(refused, LaneFailed)
    assert isinstance(answered, FinishReason)
    assert first is not second
    assert 0 == first.runner.pool.num_held


async def _asked(model):
    model.engine.reserve()
    sequence = Sequence("r", Ids(np.array([3, 4])), Decoding(4))
    model.engine.submit(sequence)
    return sequence


def test_an_answer_says_how_much_of_its_prompt_was_kept(both):
    """In its usage, as in the metrics: the third time, by callers of one salt and one tenant."""
    _, paged = both
    num_bytes = 1 << 20

    async def run():
        async with Loaded(paged, lanes=1, threads=1, slots=4, prefix_cache_mb=1) as model:
            ids = common_pb2.TokenIds(ids=[5 + index % 7 for index in range(40)])
            cached, answers = [], []
            for tenant, salt in (("t", "a"), ("t", "a"), ("t", "b"), ("u", "a"), ("t", "a")):
                completion = (await ask(model, tenant=tenant, token_ids=ids, cache_salt=salt)).completion
                cached.append(completion.usage.cached_tokens)
                answers.append(list(completion.token_ids))
            assert answers[:1] * 5 == answers
            return cached, model.metrics

    cached, metrics = asyncio.run(run())
    assert [0, 0, 0, 0, 32] == cached
    assert 32 == metrics.prefix_cache_tokens.value
    results = {result: counter.value for (_, result), counter in metrics.counters.items() if result in ("hit", "miss")}
    assert {"miss": 4, "hit": 1} == results
    each = block_bytes(load_bundle(paged).manifest)
    assert (2 * each, num_bytes // each * each) == (metrics.prefix_cache_bytes.value, metrics.prefix_cache_max_bytes)


def test_too_little_to_keep_a_block_is_no_cache(both, monkeypatch):
    """The model answers without one, and the log says what it would take. So does a bundle over slots."""
    slotted, paged = both
    monkeypatch.setattr("weft_server.loading.paged_lanes.MEBIBYTE", 1000)

    async def run(directory):
        async with Loaded(directory, lanes=1, threads=1, slots=2, prefix_cache_mb=1) as model:
            found = [(await ask(model, text="x" * 40)).completion.usage.cached_tokens for _ in range(3)]
            assert 0 == model.metrics.prefix_cache_max_bytes
            return found

    with capture_logs() as logs:
        assert [0, 0, 0] == asyncio.run(run(paged))
        assert [0, 0, 0] == asyncio.run(run(slotted))
    small, slots = [line for line in logs if "prefix cache" in line["event"]]
    assert small["wanted_mb"] > 1
    assert "no prefix cache on a device without --paged" == slots["event"]


def test_what_is_kept_takes_memory_of_the_device(both):
    """A lane takes so many blocks more, which the books of its device know."""
    _, paged = both
    bundle = load_bundle(paged)
    each = block_bytes(bundle.manifest)
    (none,), (some,) = (
        lane_memory_needs(bundle, read_config(repository=paged, prefix_cache_mb=megabytes), 1) for megabytes in (0, 3)
    )
    assert (3 << 20) // each * each == some - none


def test_a_memory_too_small_and_a_cpu_are_refused(both, monkeypatch):
    """The first sentence says how much is enough, the second what to export instead."""
    _, paged = both

    async def small():
        async with Loaded(paged, slots=2, cache_gb=least(paged) * 0.7):
            raise AssertionError("it was loaded")

    with pytest.raises(BundleError, match=r"--cache-gb \S+ holds \d+ tokens, and a request may have \d+: give"):
        asyncio.run(small())
    monkeypatch.undo()
    assert "its cache lies in blocks, which is for --device cuda" in asyncio.run(refusal_of(paged))
