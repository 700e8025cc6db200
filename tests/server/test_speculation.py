"""Laws of speculation: drafts change how many steps an answer takes, and no bit of it."""

import asyncio
import random
from contextlib import aclosing

import numpy as np
import pytest

from loaded import Loaded, ask, refusal_of
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine import speculation, speculation_check
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.prompt_lookup import Drafts
from weft_server.engine.slots import Slots
from weft_server.engine.speculation import Speculation
from weft_server.models.request_context import RequestContext
from weft_server.requests.generate import Completed, complete
from weft_server.runtime.session import Session
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics

SERVED = {"lanes": 1, "slots": 4}
PROMPTS = [[5, 9, 12, 5, 9, 12, 5, 9], [40, 41, 42, 43, 44, 45, 46, 47, 48, 49], [3]]
DECODINGS = [
    {"greedy": {}},
    {"greedy": {}, "min_new_tokens": 30},
    {"sampling": {"temperature": 0.6, "seed": 4}},
    {"sampling": {"temperature": 1.0, "top_p": 0.9, "seed": 5}},
    {"greedy": {}, "penalties": {"repetition": 1.3}},
    {"sampling": {"temperature": 0.8, "seed": 6}, "penalties": {"no_repeat_ngram_size": 3, "frequency": 0.4}},
    {"greedy": {}, "stop_token_ids": {"ids": [17, 30, 99, 120, 200]}},
    {"greedy": {}, "constraint": {"regex": "[ab c]{4,20}"}},
]


@pytest.fixture(scope="module")
def directory(int8_repository):
    """A generator whose lone rows draft."""
    return int8_repository / "tiny-generate-int8" / "1"


def requests():
    """Each prompt with each decoding."""
    for prompt in PROMPTS:
        for fields in DECODINGS:
            yield {
                "token_ids": {"ids": prompt},
                "decoding": {"max_new_tokens": 32, **fields},
                "return_scores": True,
                "num_top_tokens": 3,
            }


def what(response):
    """All of an answer but how long it took."""
    response.completion.ClearField("timings")
    response.completion.ClearField("usage")
    response.completion.ClearField("request_id")
    return response.SerializeToString(deterministic=True), list(response.completion.token_ids)


async def answers(model):
    """Each request's answer, one in flight."""
    return [what(await ask(model, **request)) for request in requests()]


async def streamed(model, ids):
    """A greedy stream's text, tokens and log-probabilities."""
    decoding = common_pb2.Decoding(max_new_tokens=40, min_new_tokens=40, greedy=common_pb2.Greedy())
    read = lambda _: Ids(np.array(ids))  # noqa: E731
    deltas = []
    async with aclosing(complete(RequestContext("x"), model, read, decoding, streams=True, scores=True)) as events:
        async for event in events:
            if isinstance(event, Completed):
                return "".join(deltas), event.token_ids, event.log_probs
            deltas.append(event)
    raise AssertionError("no answer")


def test_answers_have_the_bits_of_plain_decoding(directory, monkeypatch):
    """Greedy, sampled, penalized, constrained and stopped; with scores and top tokens; whatever was drafted.

    Drafts are those of the text itself, then right ones among wrong ones.
    """

    async def run():
        async with Loaded(directory, num_speculative_tokens=0, **SERVED) as model:
            plain = await answers(model)
            stream = await streamed(model, PROMPTS[0])
            assert 0 == model.metrics.draft_tokens.value
        async with Loaded(directory, **SERVED) as model:
            assert plain == await answers(model)
            assert stream == await streamed(model, PROMPTS[0])
            assert stream[0] == (await streamed(model, PROMPTS[0]))[0]
            assert 0 < model.metrics.accepted_tokens.value <= model.metrics.draft_tokens.value
            rng = random.Random(0)
            texts = [
                [*request["token_ids"]["ids"], *token_ids]
                for request, (_, token_ids) in zip(requests(), plain, strict=True)
            ]

            def drafted(history, most):
                text = next(text for text in texts if text[: len(history)] == history.tolist())
                right = [*text[len(history) :], *[1] * most][:most]
                return Drafts(np.array([rng.choice([each, each, each, 2]) for each in right]), 3)

            monkeypatch.setattr(speculation, "look_up", drafted)
            before = model.metrics.accepted_tokens.value
            assert plain == await answers(model)
            assert model.metrics.accepted_tokens.value > before

    asyncio.run(run())


def test_what_was_drafted_in_vain_is_never_read(directory, monkeypatch):
    """Where every draft is wrong, each token still has its bits; so has an answer that follows in the same slot.

    The prefix cache keeps nothing of it either.
    """
    monkeypatch.setattr(speculation, "look_up", lambda _, most: Drafts(np.full(most, 3), 3))
    prompt = list(range(4, 40))

    async def asked(model):
        request = {"token_ids": {"ids": prompt}, "decoding": {"max_new_tokens": 12, "greedy": {}}}
        return [what(await ask(model, return_scores=True, **request)) for _ in range(3)]

    async def run():
        async with Loaded(directory, num_speculative_tokens=0, **SERVED) as model:
            plain = await asked(model)
        async with Loaded(directory, prefix_cache_mb=1, **SERVED) as model:
            assert plain == await asked(model)
            assert model.metrics.draft_tokens.value > model.metrics.accepted_tokens.value

    asyncio.run(run())


def test_an_answer_ends_where_its_drafts_go_on(directory, monkeypatch):
    """A stop token among drafts that are all right ends the answer there, as without drafts, and no lane fails."""
    free = {"token_ids": {"ids": PROMPTS[1]}, "decoding": {"max_new_tokens": 32, "min_new_tokens": 32, "greedy": {}}}

    async def run():
        async with Loaded(directory, num_speculative_tokens=0, **SERVED) as model:
            ids = what(await ask(model, **free))[1]
            stop = ids[5]
            assert stop not in ids[:5]
            stopped = free | {"decoding": {"max_new_tokens": 32, "greedy": {}, "stop_token_ids": {"ids": [stop]}}}
            plain = what(await ask(model, **stopped))
        text = [*PROMPTS[1], *ids]
        monkeypatch.setattr(
            speculation, "look_up", lambda history, most: Drafts(np.array(text[len(history) :][:most]), 3)
        )
        async with Loaded(directory, **SERVED) as model:
            assert plain == what(await ask(model, **stopped))
            assert 4 == model.metrics.accepted_tokens.value
            assert not any(
                count.value for (name, _), count in model.metrics.counters.items() if name == "failures_total"
            )

    asyncio.run(run())


def test_each_token_counts_once(directory, monkeypatch):
    """Each token is produced once, and each but the first has a gap. Each right draft saves a step."""

    async def run():
        async with Loaded(directory, **SERVED) as model:
            metrics = model.metrics

            def counts():
                histograms = (metrics.inter_token_latency, metrics.decode_step)
                return [metrics.generated_tokens.value, *(each.snapshot()[0][-1][1] for each in histograms)]

            _, ids, _ = await streamed(model, PROMPTS[0])
            text = [*PROMPTS[0], *ids]
            monkeypatch.setattr(
                speculation, "look_up", lambda history, most: Drafts(np.array(text[len(history) :][:most]), 3)
            )
            before, accepted = counts(), metrics.accepted_tokens.value
            assert ids == (await streamed(model, PROMPTS[0]))[1]
            saved = metrics.accepted_tokens.value - accepted
            assert saved > len(ids) / 2
            expected = [len(ids), len(ids) - 1, len(ids) - 1 - saved]
            assert expected == [new - old for new, old in zip(counts(), before, strict=True)]

    asyncio.run(run())


def row(num_new, past, *, max_new=50):
    """Slots with one row that repeats itself, and what it drafts with."""
    slots = Slots(2, 50)
    slots.place(0, Sequence("r", Ids(np.array([5, 6, 7, 8] * 3)), Decoding(max_new, 0)))
    slots.num_running = 1
    slots.num_new[0], slots.past_lengths[0] = num_new, past
    slots.output_ids[0, :num_new] = np.resize([5, 6, 7, 8], num_new)
    metrics = Metrics().for_model("m", 1, "t")
    return slots, Speculation(slots, max_total=64, most=7, metrics=metrics, vocab_size=20)


def test_a_row_drafts_fewer_where_drafts_are_wrong():
    """As many as it may; half as many after a run in which none was right; all again after one in which all were.

    When nothing is left, a long match is tried with one, and a short one is not.
    """
    slots, drafting = row(4, 15)
    sizes = []
    for share in (1, 0.5, 0, 0.5, 0, 0, 0, 1, 1):
        sizes.append(len(drafting.drafts(7)))
        drafting.note(0, sizes[-1], int(share * sizes[-1]))
    assert [7, 7, 7, 3, 3, 1, 1, 1, 7] == sizes
    slots.output_ids[0, :4] = [1, 2, 7, 8]
    assert [1, 2, 7, 8, 1, 2, 7] == drafting.drafts(7).tolist()
    slots.num_missed[0] = 3
    assert 0 == len(drafting.drafts(7))
    slots.clear(0)
    slots.place(0, Sequence("next", Ids(np.array([5, 6, 7, 5, 6])), Decoding(50, 0)))
    slots.num_new[0], slots.output_ids[0, 0] = 1, 7
    assert 7 == len(drafting.drafts(7))
    slots.num_running = 0  # the row has ended: slot 0 may hold the next prompt by now
    drafting.note(0, 7, 0)
    assert 0 == slots.num_missed[0]


@pytest.mark.parametrize(
    ("num_new", "past", "max_new", "most"),
    [(4, 15, 50, 7), (4, 15, 7, 2), (4, 15, 5, 0), (4, 60, 50, 3), (4, 63, 50, 0)],
)
def test_no_run_goes_past_an_end(num_new, past, max_new, most):
    """What is drafted fits into the rest of the answer, the token behind it included, and into the cache."""
    assert most == len(row(num_new, past, max_new=max_new)[1].drafts(7))


@pytest.mark.parametrize("column", ["is_beam", "adapters"])
def test_some_rows_draft_nothing(column):
    """A beam, whose search moves its tokens, and a row with an adapter."""
    slots, drafting = row(4, 15)
    getattr(slots, column)[0] = 1
    assert 0 == len(drafting.drafts(7))


def checked(directory):
    """A runner with one slot, and what is tried of it."""
    bundle = load_bundle(directory)
    session = Session(bundle.path(bundle.graph(bundle_pb2.GRAPH_ROLE_DECODER).path), 1)
    slots = Slots(1, bundle.manifest.text.max_new_tokens)
    return DecodeRunner(bundle.manifest, None, session, slots, max_drafts=7), slots


def test_runs_of_several_tokens_have_the_bits_of_single_ones(directory):
    """Of an int8 decoder all outputs and cache entries are equal; one other bit in any of them is seen."""
    runner, slots = checked(directory)
    assert speculation_check.drafts_are_exact(runner, slots, 300)
    verify = runner.verify

    def of_logits(drafts):
        candidates = verify(drafts)
        candidates.logits[len(drafts)][7] = np.nextafter(candidates.logits[len(drafts)][7], np.float32(9))
        return candidates

    def of_caches(drafts):
        candidates = verify(drafts)
        runner.host_states.states[-1].past(0)[0, 0, slots.past_lengths[0] + len(drafts), 3] ^= 1
        return candidates

    for runner.verify in (of_logits, of_caches):
        assert not speculation_check.drafts_are_exact(runner, slots, 300)


def test_where_bits_differ_nothing_is_drafted(directory, monkeypatch):
    """The model is served without drafts."""
    monkeypatch.setattr("weft_server.loading.exact_drafts.drafts_are_exact", lambda *_: False)
    monkeypatch.setattr(speculation, "look_up", lambda _, most: Drafts(np.full(most, 3), 3))

    async def run():
        async with Loaded(directory, **SERVED) as model:
            await streamed(model, PROMPTS[0])
            assert 0 == model.metrics.draft_tokens.value

    asyncio.run(run())


def test_a_graph_that_cannot_do_what_it_promises_is_refused(directory, monkeypatch):
    """A decoder whose lengths may be several, and which fails on them, is refused with what it said."""

    def failing(*_):
        raise RuntimeError("no such rows")

    monkeypatch.setattr("weft_server.loading.exact_drafts.drafts_are_exact", failing)
    assert "does not verify drafts as its lengths promise: no such rows" in asyncio.run(refusal_of(directory))
