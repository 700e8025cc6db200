"""Laws of short prompts that are read in one run: each has the bits of a run of its own."""

import asyncio
import random

import numpy as np
import pytest

from few import few_of
from loaded import Loaded, ask
from observed_lanes import Watched
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.prefill_chunks import PREFILL_CHUNK
from weft_server.engine.slots import Slots
from weft_server.loading import joined_prompts
from weft_server.loading.joined_prompts import may_join
from weft_server.runtime.session import Session
from weft_server.source import SHORT

KINDS = ["tiny-generate", "tiny-gpt", "tiny-window", "tiny-decoder", "tiny-generate-int8", "tiny-generate-int4"]
NUM_SLOTS = 8
DECODINGS = [
    {"greedy": {}},
    {"sampling": {"temperature": 0.9, "top_p": 0.9, "seed": 5}},
    {"sampling": {"temperature": 0.8, "seed": 6}, "num_outputs": 2},
    {"greedy": {}, "penalties": {"repetition": 1.3, "no_repeat_ngram_size": 3}},
    {"greedy": {}, "constraint": {"regex": "[ab c]{4,20}"}},
    {"beams": {"num_beams": 2}},
]


def opened(directory):
    """A bundle and its decoder."""
    bundle = load_bundle(directory)
    return bundle, Session(bundle.path(bundle.graph(bundle_pb2.GRAPH_ROLE_DECODER).path), 1)


def said(runner, slots, prompts, read):
    """All that is said behind each prompt, and behind a token more of each."""
    slots.past_lengths[:], slots.reads_all[:], slots.input_ids[:, 0] = 0, True, range(3, 3 + len(slots.input_ids))
    given = list(read(runner, prompts))
    after = runner.decode(len(prompts))
    return [*given, *(np.array(after.logits[row]) for row in range(len(prompts)))]


def alone(runner, prompts):
    """Each in a run of its own."""
    return [np.array(runner.prefill(slot, prompt)[1].logits[0]) for slot, prompt in enumerate(prompts)]


def together(runner, prompts):
    """All in one run."""
    _, candidates = runner.join(0, prompts)
    return [np.array(candidates.logits[row]) for row in range(len(prompts))]


@pytest.mark.parametrize("name", few_of(KINDS, ["tiny-generate", "tiny-generate-int8"]))
def test_who_shares_a_run_does_not_show(name, tiny_bundle):
    """Prompts of 1 to 64 tokens, 2 to 8 in a run: their logits, and those of the step behind them, keep their bits."""
    bundle, decoder = opened(tiny_bundle(name))
    slots, rng = Slots(NUM_SLOTS, bundle.manifest.text.max_new_tokens), np.random.default_rng(0)
    runner = DecodeRunner(bundle.manifest, None, decoder, slots)
    most = min(SHORT, bundle.manifest.text.max_total_tokens - 2)
    for number in range(2, NUM_SLOTS + 1):
        longest = min(most, PREFILL_CHUNK // number)
        bucket = max(size for size in runner.chunks.buckets if size <= max(longest, 8))
        lengths = rng.integers(1, 1 + min(bucket, longest), number)
        prompts = [rng.integers(0, bundle.manifest.text.source_vocab_size, length) for length in lengths]
        both = [said(runner, slots, prompts, read) for read in (alone, together)]
        assert all(map(np.array_equal, *both)), f"lengths {lengths}"


@pytest.mark.parametrize(
    "name", few_of(["tiny-generate", "tiny-hybrid", "tiny-llava"], ["tiny-generate", "tiny-hybrid"])
)
def test_who_may_share_a_run(name, tiny_bundle):
    """Prompts of a model whose only states are keys and values, and which sees nothing."""
    assert may_join(*opened(tiny_bundle(name))) is (name == "tiny-generate")


def test_a_graph_that_gives_other_bits_shares_no_run(tiny_bundle, monkeypatch):
    """Where one number differs, each prompt has a run of its own. So it is where such a run fails."""
    bundle, decoder = opened(tiny_bundle("tiny-generate"))
    outputs = joined_prompts._outputs

    def differs(*args, joined):
        logits = outputs(*args, joined=joined)
        logits[-1][0] += joined * np.abs(logits[-1][0]) * 1e-6
        return logits

    monkeypatch.setattr(joined_prompts, "_outputs", differs)
    assert not may_join(bundle, decoder)

    def fails(*_, joined):
        raise RuntimeError(f"no run of several prompts, {joined}")

    monkeypatch.setattr(joined_prompts, "_outputs", fails)
    assert not may_join(bundle, decoder)


def stepped(directory, prompts, *, budget=16, num_slots=NUM_SLOTS):
    """Which prompts a lane read together in its first step: (their lengths, those of each run of one)."""
    watched = Watched(directory, num_slots, budget, joins=True)

    async def run():
        for length in prompts:
            watched.ask(length, 8, streams=False)
        watched.step()
        return watched.joined, [padded for _, padded in watched.runs]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("prompts", "joined", "apart"),
    [
        ([5, 6, 7], [[5, 6, 7]], []),
        ([5], [], [8]),
        ([5, 12, 16], [[5, 12, 16]], []),  # what is padded costs less than another run
        ([5, 5, 5, 30], [[5, 5, 5]], [32]),  # and here it costs more
        ([40, 41, 42], [[40, 41]], [64]),  # no more tokens than the largest run of one
        ([40, 41, 42, 43], [[40, 41], [42, 43]], []),
        ([50, 5, 6], [[5, 6]], [64]),
        ([5, 50, 6], [], [8, 64, 8]),  # nobody is overtaken
        ([5, 6, *[7] * NUM_SLOTS], [[5, 6, 7, 7, 7, 7, 7, 7]], []),  # as many as there are slots
    ],
)
def test_which_prompts_share_a_run(prompts, joined, apart, tiny_bundle):
    """Those that come one after the other, are short, and are about as long."""
    assert (joined, apart) == stepped(tiny_bundle("tiny-generate"), prompts)


def test_answers_do_not_show_who_was_read_with_them(tiny_bundle, monkeypatch):
    """Whatever they ask for: what each gets alone, it gets in a burst of 24 on a lane that reads them together."""
    runs, join = [], DecodeRunner.join

    def noted(self, slot, prompts):
        runs.append(len(prompts))
        return join(self, slot, prompts)

    monkeypatch.setattr(DecodeRunner, "join", noted)
    rng = random.Random(0)
    requests = [
        {
            "token_ids": {"ids": [rng.randrange(3, 200) for _ in range(rng.choice((1, 4, 7, 8, 12, 20)))]},
            "decoding": {"max_new_tokens": rng.randrange(2, 9), **DECODINGS[number // 4]},
        }
        for number in range(24)
    ]

    async def asked(model, request):
        response = await ask(model, **request)
        for field in ("timings", "usage", "request_id"):
            response.completion.ClearField(field)
        return response.SerializeToString(deterministic=True)

    async def run():
        async with Loaded(tiny_bundle("tiny-generate"), lanes=1, slots=NUM_SLOTS) as model:
            apart = [await asked(model, request) for request in requests]
            runs.clear()
            return apart, await asyncio.gather(*(asked(model, request) for request in requests))

    apart, burst = asyncio.run(run())
    assert apart == burst
    assert max(runs) > 2
