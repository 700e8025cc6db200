"""Laws of speculation with an encoder: a lone row drafts from its source, and no bit of its answer changes."""

import asyncio
import random

import numpy as np
import pytest

from loaded import Loaded, ask
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine import speculation, speculation_check
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.prompt_lookup import Drafts
from weft_server.engine.slots import Slots
from weft_server.engine.speculation import Speculation
from weft_server.loading.exact_drafts import exact_drafts
from weft_server.runtime.session import Session
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics

SERVED = {"lanes": 1, "slots": 4}
# Of one token, whose memory no draft fits; of a few, which bound the drafts; and a long one.
SOURCES = [[6], [6, 7], [6, 7, 8, 6], [5, 9, 12, 5, 9, 12, 5, 9, 3], list(range(4, 24))]
DECODINGS = [
    {"greedy": {}},
    {"greedy": {}, "min_new_tokens": 20},
    {"sampling": {"temperature": 0.8, "top_p": 0.9, "seed": 4}},
    {"greedy": {}, "penalties": {"repetition": 1.3, "no_repeat_ngram_size": 3}},
    {"greedy": {}, "stop_token_ids": {"ids": [7, 11, 19, 23]}},
    {"beams": {"num_beams": 3}},
]


@pytest.fixture(scope="module")
def directory(int8_repository):
    """A model with an encoder, whose sides have one vocabulary."""
    return int8_repository / "tiny-t5-int8" / "1"


async def answers(model):
    """Each source with each decoding, one in flight: the whole answer, and its tokens."""
    found = []
    for source in SOURCES:
        for fields in DECODINGS:
            decoding = {"max_new_tokens": 23, **fields}
            scored = "beams" not in fields
            request = {"token_ids": {"ids": source}, "decoding": decoding, "return_scores": scored}
            response = await ask(model, **request)
            for field in ("timings", "usage", "request_id"):
                response.completion.ClearField(field)
            found.append((response.SerializeToString(deterministic=True), [*response.completion.token_ids]))
    return found


@pytest.mark.parametrize("settings", [{}, {"prefix_cache_mb": 1}])
def test_answers_have_the_bits_of_plain_decoding(directory, monkeypatch, settings):
    """Of drafts that are right among wrong ones, and of wrong ones alone.

    A memory that the prefix cache gives is as good as one that an encoder wrote.
    """

    async def run():
        async with Loaded(directory, num_speculative_tokens=0, **SERVED) as model:
            plain = await answers(model)
            assert 0 == model.metrics.draft_tokens.value
        sources = [source for source in SOURCES for _ in DECODINGS]
        texts = [source + ids for source, (_, ids) in zip(sources, plain, strict=True)]
        rng = random.Random(0)

        def drafted(history, most):
            # Of the answers that begin so, any: drafts need not be right.
            text = rng.choice([text for text in texts if text[: len(history)] == history.tolist()])
            right = [*text[len(history) :], *[1] * most][:most]
            return Drafts(np.array([rng.choice([each, each, each, 2]) for each in right]), 3)

        async with Loaded(directory, **settings, **SERVED) as model:
            monkeypatch.setattr(speculation, "look_up", drafted)
            assert plain == await answers(model)
            drafts, accepted = model.metrics.draft_tokens, model.metrics.accepted_tokens
            assert 50 < accepted.value < drafts.value
            monkeypatch.setattr(speculation, "look_up", lambda _, most: Drafts(np.full(most, 2), 3))
            before = accepted.value
            assert plain == await answers(model)
            assert before + 30 > accepted.value

    asyncio.run(run())


def test_an_answer_that_copies_takes_fewer_steps(directory, monkeypatch):
    """A row looks back at its source: what followed there is drafted."""
    seen = []

    async def run():
        async with Loaded(directory, **SERVED) as model:
            look_up = speculation.look_up

            def noted(history, most):
                seen.append(history.tolist())
                return look_up(history, most)

            monkeypatch.setattr(speculation, "look_up", noted)
            decoding = {"max_new_tokens": 12, "min_new_tokens": 12, "greedy": {}}
            response = await ask(model, token_ids={"ids": SOURCES[3]}, decoding=decoding)
            ids = [*response.completion.token_ids]
            assert all(history == (SOURCES[3] + ids)[: len(history)] for history in seen)
            assert len(SOURCES[3]) + 1 == len(seen[0])

    asyncio.run(run())


def row(num_new, memory, *, max_new=50, most=7, source=(5, 6, 7, 8, 9, 10, 11, 12)):
    """Slots with one row whose answer begins as its source does, and what it drafts with."""
    slots = Slots(2, 50)
    slots.place(0, Sequence("r", Ids(np.array(source)), Decoding(max_new, 0)))
    slots.num_running = 1
    slots.num_new[0], slots.past_lengths[0], slots.memory_lengths[0] = num_new, num_new, memory
    slots.output_ids[0, :num_new] = np.resize([5, 6], num_new)
    metrics = Metrics().for_model("m", 1, "t")
    return Speculation(slots, max_total=64, most=most, metrics=metrics, vocab_size=12, has_memory=True)


@pytest.mark.parametrize(
    ("num_new", "memory", "drafts"),
    [
        (2, 8, [7, 8, 9, 10, 11]),  # 12 is no token of answers
        (2, 4, [7, 8, 9]),
        (2, 1, []),
        (0, 8, []),
        (1, 8, []),
    ],
)
def test_what_is_drafted(num_new, memory, drafts):
    """A run has no more tokens than the memory has places, and no draft is beyond the vocabulary of answers."""
    assert drafts == row(num_new, memory).drafts(7).tolist()


def test_a_row_drafts_nothing_before_its_answer():
    """A source that repeats its end says nothing of the first token: the start token stands between."""
    assert [] == row(0, 8, source=(5, 6, 7, 5, 6)).drafts(7).tolist()


def checked(directory):
    """A runner with one slot, what is tried of it, and its bundle and session."""
    bundle = load_bundle(directory)
    session = Session(bundle.path(bundle.graph(bundle_pb2.GRAPH_ROLE_DECODER).path), 1)
    slots = Slots(1, bundle.manifest.text.max_new_tokens)
    return DecodeRunner(bundle.manifest, None, session, slots, max_drafts=7), slots, bundle, session


def test_runs_of_several_tokens_have_the_bits_of_single_ones(directory):
    """Over memories of all lengths that a run may meet; one other bit in a cache is seen."""
    runner, slots, bundle, session = checked(directory)
    assert speculation_check.drafts_are_exact(runner, slots, 40)
    assert 7 == exact_drafts(bundle, session, 7)
    verify, places = runner.verify, set()

    def noted(drafts):
        places.add(int(slots.memory_lengths[0]))
        # Over a memory of zeros, attention would say the same whatever is asked.
        assert all(state.past(0)[0].any(axis=-1).all() for state in runner.host_states.states if state.memory)
        return verify(drafts)

    runner.verify = noted
    assert speculation_check.drafts_are_exact(runner, slots, 40)
    assert {8, bundle.manifest.text.max_source_tokens} == places

    def of_caches(drafts):
        candidates = verify(drafts)
        cache = next(state for state in runner.host_states.states if not state.memory)
        cache.past(0)[0, 0, slots.past_lengths[0] + len(drafts), 3] ^= 1
        return candidates

    runner.verify = of_caches
    assert not speculation_check.drafts_are_exact(runner, slots, 40)


def test_no_run_is_longer_than_the_longest_source(directory):
    """Of a model whose sources are short, fewer are drafted."""
    _, _, bundle, session = checked(directory)
    assert 20 == exact_drafts(bundle, session, 63)


def test_another_vocabulary_drafts_nothing(int8_repository):
    """A translator whose sides have two: its graph takes no such runs."""
    *_, bundle, session = checked(int8_repository / "tiny-translate-int8" / "1")
    assert 0 == exact_drafts(bundle, session, 7)
