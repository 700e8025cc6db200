"""Laws of drafts beside other rows: whoever shares a run with them, no answer changes by a bit."""

import asyncio
import random

import numpy as np
import pytest

from loaded import Loaded, ask
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine import speculation, speculation_check
from weft_server.engine.decode_lane import DecodeLane
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.prompt_lookup import Drafts
from weft_server.engine.rows import Rows
from weft_server.engine.slots import Slots
from weft_server.engine.speculation import Speculation
from weft_server.loading.exact_drafts import may_draft_mixed
from weft_server.runtime.session import Session
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics

MIXED = bundle_pb2.GRAPH_ROLE_MIXED
SERVED = {"lanes": 1, "slots": 6}
PROMPTS = [[5, 9, 12, 5, 9, 12, 5, 9], [40, 41, 42, 43, 44, 45, 46, 47, 48, 49], [3], list(range(60, 90))]
DECODINGS = [
    {"greedy": {}},
    {"greedy": {}, "min_new_tokens": 14},
    {"sampling": {"temperature": 0.9, "top_p": 0.9, "seed": 5}},
    {"sampling": {"temperature": 0.8, "seed": 6}, "num_outputs": 3},
    {"greedy": {}, "penalties": {"repetition": 1.3, "no_repeat_ngram_size": 3}},
    {"greedy": {}, "stop_token_ids": {"ids": [17, 30, 99, 120, 200]}},
    {"greedy": {}, "constraint": {"regex": "[ab c]{4,20}"}},
    {"beams": {"num_beams": 2}},
]


@pytest.fixture(scope="module")
def directory(int8_repository):
    """A generator with a graph for mixed runs."""
    return int8_repository / "tiny-generate-int8" / "1"


def requests():
    """Each prompt with each decoding, answers of many lengths."""
    for size, prompt in enumerate(PROMPTS):
        for number, fields in enumerate(DECODINGS):
            decoding = {"max_new_tokens": 14 + 3 * size + number, **fields}
            yield {"token_ids": {"ids": prompt}, "decoding": decoding, "return_scores": "beams" not in fields}


async def asked(model, request):
    """All of an answer but how long it took, and the tokens of the best output."""
    response = await ask(model, **request)
    for field in ("timings", "usage", "request_id"):
        response.completion.ClearField(field)
    return response.SerializeToString(deterministic=True), [*response.completion.token_ids]


def watch(monkeypatch):
    """How many rows stood before each row that drafted, from now on."""
    seen = []
    verify = DecodeRunner.verify

    def noted(self, drafts, num_before=0):
        seen.append(num_before)
        return verify(self, drafts, num_before)

    monkeypatch.setattr(DecodeRunner, "verify", noted)
    return seen


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_answers_have_the_bits_of_plain_decoding(directory, monkeypatch, seed):
    """In any company, in any order, with any drafts: right ones among wrong ones, of this answer or another."""

    async def run():
        rng = random.Random(seed)
        async with Loaded(directory, num_speculative_tokens=0, **SERVED) as model:
            plain = [await asked(model, request) for request in requests()]
        texts = [[*request["token_ids"]["ids"], *ids] for request, (_, ids) in zip(requests(), plain, strict=True)]

        def drafted(history, most):
            fits = [text for text in texts if text[: len(history)] == history.tolist()]
            right = [*rng.choice(fits)[len(history) :], *[1] * most][:most] if fits else [1] * most
            return Drafts(np.array([rng.choice([each, each, each, 2]) for each in right]), rng.choice([2, 3, 3]))

        async with Loaded(directory, prefix_cache_mb=1, **SERVED) as model:
            monkeypatch.setattr(speculation, "look_up", drafted)
            # Not those that were tried before the model was ready.
            seen = watch(monkeypatch)
            order = list(enumerate(requests()))
            rng.shuffle(order)
            while order:
                together = [order.pop() for _ in range(min(rng.randint(2, 6), len(order)))]
                found = await asyncio.gather(*(asked(model, request) for _, request in together))
                assert [plain[index] for index, _ in together] == found
            assert model.metrics.accepted_tokens.value > 20
            assert any(seen)

    asyncio.run(run())


@pytest.mark.parametrize("streams", [False, True])
def test_drafts_wait_for_a_prompt(directory, monkeypatch, streams):
    """A mixed run has room for one of both. While a prompt is in prefill, no row drafts beside others."""
    monkeypatch.setattr(speculation, "look_up", lambda _, most: Drafts(np.full(most, 2), 3))
    verify = Rows.verify

    def noted(self, drafts, candidates):
        assert self.slots.num_running == 1 or self.prompt is None
        return verify(self, drafts, candidates)

    monkeypatch.setattr(Rows, "verify", noted)
    monkeypatch.setattr(Rows, "is_watched", lambda self: streams and self.slots.num_running > 0)
    monkeypatch.setattr(DecodeLane, "_allowance", lambda _: 8)

    async def run():
        decoding = {"max_new_tokens": 22, "min_new_tokens": 22, "greedy": {}}
        async with Loaded(directory, **SERVED) as model:
            seen = watch(monkeypatch)
            prompts = [*PROMPTS, *(list(range(number, 40 + number)) for number in range(4, 12))]
            await asyncio.gather(*(ask(model, token_ids={"ids": prompt}, decoding=decoding) for prompt in prompts))
            assert any(seen)

    asyncio.run(run())


@pytest.mark.parametrize("budget", [2, 5])
def test_neighbours_wait_no_longer_than_for_a_prompt(directory, monkeypatch, budget):
    """A run with drafts beside others reads no more of their row than a mixed run may of a prompt."""
    monkeypatch.setattr(speculation, "look_up", lambda _, most: Drafts(np.full(most, 2), 3))
    sizes = {True: set(), False: set()}
    verify = DecodeRunner.verify

    def noted(self, drafts, num_before=0):
        sizes[num_before > 0].add(1 + len(drafts))
        return verify(self, drafts, num_before)

    async def run():
        decoding = {"max_new_tokens": 24, "min_new_tokens": 24, "greedy": {}}
        async with Loaded(directory, prefill_budget=budget, **SERVED) as model:
            # Runs were tried before.
            monkeypatch.setattr(DecodeRunner, "verify", noted)
            await ask(model, token_ids={"ids": PROMPTS[0]}, decoding=decoding)
            await asyncio.gather(*(ask(model, token_ids={"ids": ids}, decoding=decoding) for ids in PROMPTS))

    asyncio.run(run())
    assert budget == max(sizes[True])
    assert 8 == max(sizes[False])


def rows(count, *, beam=None, num_outputs=1, prompt=(5, 6, 7, 8, 5, 6, 7, 8)):
    """Slots with so many rows, and what the last one drafts with. What they say follows their prompts."""
    slots = Slots(10, 50)
    for slot in range(count):
        decoding = Decoding(50, 0, num_outputs=num_outputs)
        slots.place(slot, Sequence(f"{slot}", Ids(np.array(prompt)), decoding))
        slots.num_new[slot], slots.past_lengths[slot] = 1, len(prompt)
        slots.output_ids[slot, 0] = 5
    slots.num_running = count
    if beam is not None:
        slots.is_beam[beam] = True
    metrics = Metrics().for_model("m", 1, "t")
    return slots, Speculation(slots, max_total=64, most=7, metrics=metrics, vocab_size=20, beside=True)


@pytest.mark.parametrize(
    ("count", "more", "most"),
    [
        (1, {}, 7),
        (2, {}, 7),
        (8, {}, 7),
        (9, {}, 0),
        (2, {"beam": 0}, 0),
        (2, {"beam": 1}, 0),
        (1, {"num_outputs": 2}, 7),
        (2, {"num_outputs": 2}, 0),
        (1, {"prompt": (8, 5, 1, 8)}, 7),
        (2, {"prompt": (8, 5, 1, 8)}, 0),
    ],
)
def test_who_drafts(count, more, most):
    """Beside others: at most seven, no search among them; its request's only row, where three tokens were found."""
    assert most == len(rows(count, **more)[1].drafts(7))


def test_the_last_row_keeps_its_own_count():
    """What it missed is noted for it; if it has ended, for nobody."""
    slots, drafting = rows(3)
    drafting.note(2, 7, 0)
    assert [0, 0, 1] == slots.num_missed[:3].tolist()
    assert 3 == len(drafting.drafts(7))
    assert 2 == len(drafting.drafts(2))
    slots.num_running = 2
    drafting.note(2, 3, 0)
    assert [0, 0, 1] == slots.num_missed[:3].tolist()


def checked(directory):
    """A runner with two slots and both graphs, what is tried of it, and all that it is made of."""
    bundle = load_bundle(directory)
    decoder, mixed = (
        Session(bundle.path(bundle.graph(role).path), 1) for role in (bundle_pb2.GRAPH_ROLE_DECODER, MIXED)
    )
    slots = Slots(2, bundle.manifest.text.max_new_tokens)
    return DecodeRunner(bundle.manifest, None, decoder, slots, mixed, max_drafts=7), slots, (bundle, decoder, mixed)


def test_mixed_runs_have_the_bits_of_two_runs(directory):
    """Of an int8 graph they do; one other bit of a row, of a draft or of a cache is seen."""
    runner, slots, made = checked(directory)
    assert speculation_check.drafts_are_exact_beside(runner, slots, 300)
    assert may_draft_mixed(*made, 7)
    assert not may_draft_mixed(*made, 0)
    verify = runner.verify

    def wrong(index):
        def other(drafts, num_before=0):
            candidates = verify(drafts, num_before)
            if num_before:
                candidates.logits[index][7] = np.nextafter(candidates.logits[index][7], np.float32(9))
            return candidates

        return other

    def of_caches(drafts, num_before=0):
        candidates = verify(drafts, num_before)
        if num_before:
            runner.host_states.states[-1].past(0)[1, 0, slots.past_lengths[1] + len(drafts), 3] ^= 1
        return candidates

    for runner.verify in (wrong(0), wrong(1), wrong(2), of_caches):
        assert not speculation_check.drafts_are_exact_beside(runner, slots, 300)


def test_an_older_mixed_graph_reads_no_drafts(directory):
    """Its prompt_lengths say one length."""
    _, _, (bundle, decoder, mixed) = checked(directory)
    graph = bundle.needed_graph(MIXED)
    next(port for port in graph.inputs if port.name == "prompt_lengths").shape[:] = ["1"]
    assert not may_draft_mixed(bundle, decoder, mixed, 7)


def test_where_bits_differ_rows_draft_alone(directory, monkeypatch):
    """The model is served, and its rows draft nothing beside others."""
    monkeypatch.setattr("weft_server.loading.exact_drafts.drafts_are_exact_beside", lambda *_: False)
    monkeypatch.setattr(speculation, "look_up", lambda _, most: Drafts(np.full(most, 3), 3))
    seen = watch(monkeypatch)

    async def run():
        async with Loaded(directory, **SERVED) as model:
            await asyncio.gather(*(asked(model, request) for request in requests()))

    asyncio.run(run())
    assert {0} == set(seen)
