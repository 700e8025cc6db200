"""The law of the prefix cache: what it gives is, to the bit, what reading would have given, wherever the cut is."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from structlog.testing import capture_logs
from tiny import CHECKPOINTS
from tiny_parts import randomised

from loaded import Loaded, ask, golden_request
from toy import Toy
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine import prefix_cache
from weft_server.engine.decode_lane import DecodeLane
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.prefix_cache import PrefixCache
from weft_server.engine.prefix_index import MARK_BYTES, MIN_MARKS
from weft_server.engine.prefix_reader import PIECE, PrefixReader
from weft_server.engine.slots import Slots
from weft_server.errors import BundleError, InvalidRequest
from weft_server.runtime.prefix_store import kept_states
from weft_server.runtime.session import Session
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Cancelled, Decoding, Sequence
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics

PROMPTS = [
    "tiny-gpt",
    "tiny-window",
    "tiny-decoder",
    "tiny-generate-int8",
    "tiny-decoder-int8",
    "tiny-hybrid",
    "tiny-hybrid-int8",
]
SIZES = [(name, size) for name in PROMPTS for size in (1, 5, 16)]
# A state space reads blocks of eight tokens.
SIZES += [("tiny-state-space", 16), ("tiny-state-space-int8", 16)]
SOURCES = [
    "tiny-translate",
    "tiny-t5",
    "tiny-rnn",
    "tiny-attention-rnn",
    "tiny-translate-int8",
    "tiny-attention-rnn-int8",
]
MEGABYTES = 64 << 20


class Graphs:
    """The sessions of a bundle, for several lanes."""

    def __init__(self, directory, num_threads=1):
        bundle = load_bundle(directory)
        self.manifest = bundle.manifest

        def opened(role):
            graph = bundle.graph(role)
            return Session(bundle.path(graph.path), num_threads) if graph else None

        self.encoder = opened(bundle_pb2.GRAPH_ROLE_ENCODER)
        self.decoder = opened(bundle_pb2.GRAPH_ROLE_DECODER)
        self.mixed = opened(bundle_pb2.GRAPH_ROLE_MIXED)
        self.start_id = self.manifest.text.start_id if self.encoder else None


class Lane:
    """A lane with or without a cache, and the logits from which each answer's tokens were chosen."""

    def __init__(self, graphs, cache=None, *, num_slots=4, budget=8, mixes=False):
        self.graphs, self.cache = graphs, cache
        text = graphs.manifest.text
        self.slots = Slots(num_slots, text.max_new_tokens)
        mixed = graphs.mixed if mixes else None
        self.runner = DecodeRunner(graphs.manifest, graphs.encoder, graphs.decoder, self.slots, mixed)
        self.metrics = Metrics().for_model("m", 1, "t")
        self.lane = DecodeLane(
            self.slots,
            self.runner,
            start_id=graphs.start_id,
            end_ids=tuple(text.end_ids),
            prefill_budget=budget,
            metrics=self.metrics,
            prefix_reader=PrefixReader(cache, self.runner.host_states, self.slots, self.metrics) if cache else None,
        )
        self.waiting, self.logits, self.answers, self.ended = [], [], {}, {}
        # Padded tokens of prompts, in runs of their own and beside rows, and sources that were read.
        self.read, self.beside, self.encoded = [], [], []
        self._watch()

    def _watch(self):
        prefill, mixed, encode, decode = self.runner.prefill, self.runner.mixed, self.runner.encode, self.runner.decode

        def watched_prefill(slot, token_ids, features):
            padded, candidates = prefill(slot, token_ids, features)
            self.read.append(len(token_ids))
            self.logits.append(np.array(candidates.logits[0]))
            return padded, candidates

        def watched_mixed(num_rows, token_ids, *, ends):
            self.beside.append(len(token_ids))
            return mixed(num_rows, token_ids, ends=ends)

        def watched_encode(sources, slots):
            self.encoded.append(len(sources))
            encode(sources, slots)

        def watched_decode(num_rows):
            candidates = decode(num_rows)
            self.logits.append(np.array(candidates.logits[0]))
            return candidates

        self.runner.prefill, self.runner.mixed = watched_prefill, watched_mixed
        self.runner.encode, self.runner.decode = watched_encode, watched_decode

    def ask(self, ids, num_new=6, *, streams=False, salt="", **decoding):
        """Let an input wait."""
        decoding = Decoding(num_new, num_new, **decoding)
        sequence = Sequence("r", Ids(np.array(ids)), decoding, wants_tokens=streams, wants_scores=True, cache_salt=salt)
        self.waiting.append(sequence)
        self.answers[sequence] = []
        return sequence

    def step(self):
        """One step; what it gave is in `answers`."""
        take = lambda intake: [self.waiting.pop(0) for _ in range(min(intake.most, len(self.waiting)))]  # noqa: E731
        for delivery in self.lane.step(take):
            self.answers[delivery.sequence] += zip(delivery.token_ids, delivery.log_probs, strict=True)
            if delivery.outcome is not None:
                self.ended[delivery.sequence] = delivery.outputs or delivery.outcome

    def answer(self, ids, num_new=6, **wants):
        """The answer to one input, alone: (tokens with log-probabilities, all logits, how many tokens were cached)."""
        sequence = self.ask(ids, num_new, **wants)
        self.read.clear()
        self.logits.clear()
        while sequence not in self.ended:
            self.step()
        # Of prefill runs, only the last one's logits are of a token that is chosen.
        chosen = np.stack(self.logits[-num_new:])
        return self.answers[sequence], chosen.tobytes(), sequence.num_cached_tokens


def cache_of(graphs, size, num_bytes=MEGABYTES):
    """An empty cache whose pieces have so many tokens."""
    return PrefixCache(kept_states(graphs.manifest.states), size, num_bytes, Metrics().for_model("m", 1, "t"))


def in_a_loop(run):
    """Sequences have futures."""

    async def running():
        return run()

    return asyncio.run(running())


@pytest.mark.parametrize(
    "cuts",
    [
        # The budget of a step is 8 tokens.
        pytest.param((1, 7, 8, 9, 16, 23, 38, 39), id="few"),
        pytest.param(range(1, 40), id="every", marks=pytest.mark.whole),
    ],
)
@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_answers_the_same_whatever_part_of_it_was_cached(name, cuts, tiny_bundle):
    """Cold and warm have the same tokens, log-probabilities and logits, bit for bit, at every cut."""
    graphs = Graphs(tiny_bundle(name))
    ids = np.random.default_rng(1).integers(2, 300, 40).tolist()

    def run():
        cold = Lane(graphs).answer(ids)
        for cut in cuts:
            warm = Lane(graphs, cache_of(graphs, 1))
            for _ in range(2):
                warm.answer([*ids[:cut], 299 - ids[cut]])
            assert (*cold[:2], cut) == warm.answer(ids)
            assert len(ids) - cut == sum(warm.read)

    in_a_loop(run)


@pytest.fixture(scope="module", params=["fp32", "int8"])
def long_prompts(request, tmp_path_factory):
    """The bundle of a generator of 640 tokens, with a thread for each head."""
    folder = tmp_path_factory.mktemp("long")
    checkpoint = CHECKPOINTS["tiny-generate"]()
    text = bundle_pb2.TextSpec()
    text.CopyFrom(checkpoint.text)
    text.max_total_tokens, text.max_new_tokens = 640, 600
    model = type(checkpoint.model)(replace(checkpoint.model.config, max_tokens=640))
    save_checkpoint(folder / "checkpoint", replace(checkpoint, model=randomised(model), text=text))
    export_checkpoint(
        folder / "checkpoint",
        folder / "long" / "1",
        ExportOptions(precision=request.param, mixed_runs=True, no_explain=True, no_score=True),
    )
    return Graphs(folder / "long" / "1", model.config.num_heads)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cuts",
    [
        pytest.param((PIECE, 512, 544), id="few"),
        pytest.param(range(PIECE, 620, PIECE), id="every", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("mixes", [False, True])
def test_prompts_of_over_512_tokens_answer_the_same_at_every_cut(long_prompts, mixes, cuts):
    """In pieces of 32, alone and beside a stream, whose run reads them: no bit changes, and so at both precisions."""
    rng = np.random.default_rng(6)
    ids, other = (rng.integers(2, 300, 620).tolist() for _ in range(2))

    def run():
        alone = Lane(long_prompts).answer(ids)
        for cut in cuts:
            cold = Lane(long_prompts, budget=32, mixes=mixes)
            warm = Lane(long_prompts, cache_of(long_prompts, PIECE), budget=32, mixes=mixes)
            for _ in range(2):
                warm.answer([*ids[:cut], *other[cut : cut + 8]])
            answers = []
            for lane in (cold, warm):
                lane.ask([5, 6, 7], 100, streams=True)
                lane.step()
                answers.append(lane.answer(ids, streams=True))
                assert mixes == bool(lane.beside)
            assert (0, cut) == (answers[0][2], answers[1][2])
            assert alone[0] == answers[0][0] == answers[1][0]
            assert (*alone[:2], cut) == Lane(long_prompts, warm.cache).answer(ids)

    in_a_loop(run)


@pytest.mark.parametrize(("name", "size"), SIZES)
@pytest.mark.parametrize("mixes", [False, True])
def test_prompts_in_a_crowd_answer_as_without_a_cache(name, size, mixes, tiny_bundle):
    """Prompts with common beginnings come and go beside each other, in a cache too small for all: no bit changes."""
    graphs = Graphs(tiny_bundle(name))

    def run(cache):
        lanes = [Lane(graphs, cache, mixes=mixes), Lane(graphs, cache, mixes=mixes, num_slots=2)]
        rng = np.random.default_rng(2)
        beginnings = [rng.integers(2, 300, 45).tolist() for _ in range(4)]
        asked = 0
        while asked < 60 or any(lane.waiting or lane.lane.is_busy for lane in lanes):
            for lane in lanes:
                if asked < 60 and rng.random() < 0.6:
                    asked += 1
                    ids = beginnings[rng.integers(4)][: rng.integers(1, 46)] + rng.integers(2, 300, 3).tolist()
                    lane.ask(ids, int(rng.integers(1, 10)), streams=bool(rng.random() < 0.7))
                lane.step()
        return lanes, [list(lane.answers.values()) for lane in lanes]

    place = cache_of(graphs, size).place_bytes
    cache = cache_of(graphs, size, MIN_MARKS * MARK_BYTES + place * (64 // size))
    _, cold = in_a_loop(lambda: run(None))
    lanes, warm = in_a_loop(lambda: run(cache))

    assert cold == warm
    cache.check_integrity()
    assert sum(sequence.num_cached_tokens for lane in lanes for sequence in lane.answers) > 200
    if size == 1:
        # Larger pieces are rarely seen twice.
        assert cache.metrics.prefix_cache_evictions.value
    assert bool(lanes[0].beside) == (mixes and graphs.mixed is not None)


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_answers_the_same_when_its_memory_was_cached(name, tiny_bundle):
    """Read in company of others, kept from there, and given beside others: tokens, scores and logits are the same."""
    graphs = Graphs(tiny_bundle(name))
    rng = np.random.default_rng(3)
    num_ids = graphs.manifest.text.source_vocab_size
    sources = [rng.integers(0, num_ids, length).tolist() for length in (1, 2, 7, 8, 9, 16, 17, 20)]

    def run():
        alone = Lane(graphs, num_slots=16)
        cold = [alone.answer(ids) for ids in sources]
        warm = Lane(graphs, cache_of(graphs, 8), num_slots=16)
        for _ in range(2):
            crowd = [warm.ask(ids) for ids in sources]
            while len(warm.ended) < len(warm.answers):
                warm.step()
            assert [answer for answer, *_ in cold] == [warm.answers[sequence] for sequence in crowd]
        assert len(sources) * 2 == sum(warm.encoded)
        for ids, (answer, logits, _) in zip(sources, cold, strict=True):
            assert (answer, logits, len(ids)) == warm.answer(ids)
        crowd = [warm.ask(ids) for ids in sources]
        while len(warm.ended) < len(warm.answers):
            warm.step()
        assert [answer for answer, *_ in cold] == [warm.answers[sequence] for sequence in crowd]
        assert len(sources) * 2 == sum(warm.encoded)
        warm.cache.check_integrity()

    in_a_loop(run)


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-translate", "tiny-caption"])
def test_an_answer_says_how_much_of_its_input_was_cached(tiny_repository, name):
    """In its usage, as in the metrics: the third time, by callers of one salt. A picture has no cache."""

    async def run():
        async with Loaded(tiny_repository / name / "1", lanes=2, prefix_cache_mb=1) as model:
            image = golden_request(model) if name == "tiny-caption" else None
            ids = common_pb2.TokenIds(ids=[5 + index % 7 for index in range(40 if name == "tiny-generate" else 9)])
            cached, answers = [], []
            for salt in ("a", "a", "b", "a"):
                request = image or {"token_ids": ids, "cache_salt": salt}
                completion = (await ask(model, **request)).completion
                cached.append(completion.usage.cached_tokens)
                answers.append(list(completion.token_ids))
            assert answers[:1] * 4 == answers
            return cached, model.metrics

    cached, metrics = asyncio.run(run())
    expected = {"tiny-generate": 32, "tiny-translate": 9, "tiny-caption": 0}[name]
    assert [0, 0, 0, expected] == cached
    assert expected == metrics.prefix_cache_tokens.value
    results = {result: counter.value for (_, result), counter in metrics.counters.items() if result in ("hit", "miss")}
    assert ({"miss": 3, "hit": 1} if expected else {}) == results
    gauges = metrics.gauges()
    assert (1 << 20 if expected else 0) == metrics.prefix_cache_max_bytes
    assert bool(expected) == (metrics.prefix_cache_bytes.value > 0)
    assert {"prefix_cache_bytes", "prefix_cache_max_bytes"} <= set(gauges) or not gauges["model_ready"]


def test_the_sentences_of_a_text_are_sources_of_their_own(tiny_repository):
    """A sentence that came before is not read again, whatever stood beside it; usage has the sum."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1", lanes=1, prefix_cache_mb=1) as model:
            usages = []
            for text in ("The cat eats. The dog.", "The cat eats. The dog.", "The dog. The red dog."):
                answer = await ask(model, text=text, split_sentences=True)
                usages.append(answer.completion.usage)
            return [(usage.cached_tokens, usage.input_tokens) for usage in usages]

    usages = asyncio.run(run())
    assert [0, 0] == [cached for cached, _ in usages[:2]]
    assert 0 < usages[2][0] < usages[2][1]


@pytest.mark.parametrize("salt", ["ñ", "a\n", "x" * 65])
@pytest.mark.parametrize("name", ["tiny-generate", "tiny-translate"])
def test_a_salt_that_cannot_be_is_refused(tiny_repository, name, salt):
    """It is at most 64 printable ASCII characters, with a cache and without one."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            assert (await ask(model, text="the cat", cache_salt="x" * 64)).completion.token_ids
            with pytest.raises(InvalidRequest, match="at most 64 printable ASCII") as refused:
                await ask(model, text="the cat", cache_salt=salt)
            return refused.value.field

    assert "cache_salt" == asyncio.run(run())


def test_more_memory_than_there_is_is_refused(tiny_repository, monkeypatch):
    """The bundle is refused with the setting's name, not with a failed allocation."""

    def none_left(*_):
        raise MemoryError

    # A system may well promise any amount.
    monkeypatch.setattr(prefix_cache, "PrefixStore", none_left)

    async def run():
        await Loaded(tiny_repository / "tiny-generate" / "1", prefix_cache_mb=1).__aenter__()

    with pytest.raises(BundleError, match=r"--prefix-cache-mb asks for more memory"):
        asyncio.run(run())


def test_a_budget_for_less_than_one_piece_is_no_cache(tiny_repository, monkeypatch):
    """The model answers without one, and the log says what it would take."""
    monkeypatch.setattr("weft_server.loading.lanes.MEBIBYTE", 1000)

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", prefix_cache_mb=1) as model:
            return [(await ask(model, text="x" * 40)).completion.usage.cached_tokens for _ in range(3)]

    with capture_logs() as logs:
        assert [0, 0, 0] == asyncio.run(run())
    (line,) = [line for line in logs if line["event"].startswith("prefix cache")]
    assert line["wanted_mb"] > 1


@pytest.mark.parametrize(
    "several", [{"sampling": Sampling(1.0, 0, 1.0, 7)}, {"beams": Beams(4)}, {"alternatives": True}]
)
@pytest.mark.parametrize("name", ["tiny-gpt", "tiny-translate", "tiny-attention-rnn"])
def test_all_rows_of_a_sequence_begin_with_what_was_cached(tiny_repository, name, several):
    """Several answers to one input, beside another row: each is what it is without a cache."""
    graphs = Graphs(tiny_repository / name / "1")

    def run():
        found = []
        for lane in (Lane(graphs, num_slots=8), Lane(graphs, cache_of(graphs, 8), num_slots=8)):
            lane.ask([9, 8, 7], 20)
            for _ in range(2):
                lane.answer(range(3, 19))
            *_, cached = lane.answer(range(3, 19), 6, num_outputs=3, **several)
            found.append((list(lane.ended.values())[-1], cached))
        return found

    (cold, none), (warm, cached) = in_a_loop(run)
    assert cold == warm
    assert 3 == len(warm)
    assert (0, 8 if name == "tiny-gpt" else 16) == (none, cached)


def test_another_salt_reads_again(tiny_repository):
    """Nobody gets what callers with another salt have left."""
    graphs = Graphs(tiny_repository / "tiny-gpt" / "1")
    ids = list(range(2, 42))

    def run():
        lane = Lane(graphs, cache_of(graphs, 8))
        return [lane.answer(ids, salt=salt)[2] for salt in "aaabaab"]

    assert [0, 0, 32, 0, 32, 32, 0] == in_a_loop(run)


def test_only_what_was_read_as_a_prompt_is_kept(tiny_repository):
    """A prompt that is the last one and its answer finds the last one's pieces, and none of the answer's."""
    graphs = Graphs(tiny_repository / "tiny-gpt" / "1")
    ids = list(range(2, 18))

    def run():
        lane = Lane(graphs, cache_of(graphs, 1))
        for _ in range(3):
            answer, *_ = lane.answer(ids, 12)
        return lane.answer(ids + [token for token, _ in answer])[2]

    assert len(ids) == in_a_loop(run)


def test_a_step_reads_more_sources_when_some_need_no_reading(tiny_repository):
    """What is cached takes nothing of the step's allowance."""
    graphs = Graphs(tiny_repository / "tiny-translate" / "1")

    def run():
        lane = Lane(graphs, cache_of(graphs, 8), num_slots=16)
        known = [5] * 8
        for _ in range(2):
            lane.answer(known)
        # A scheduler's take: the first always, others within the budget.
        for ids in (known, known, known, [6] * 8, [7] * 8, known):
            lane.ask(ids)
        budgets = []

        def take(intake):
            budgets.append(intake.budget)
            return [lane.waiting.pop(0) for _ in range(min(intake.most, len(lane.waiting), 2))]

        lane.lane.step(take)
        return budgets, len(lane.waiting)

    budgets, left = in_a_loop(run)
    assert 0 == left
    # Two known ones, one of two, one of two.
    assert [0, 0, 8, 16] == [budgets[0] - budget for budget in budgets]


def test_a_prompt_that_goes_or_fails_in_the_middle_leaves_the_cache_whole(tiny_repository):
    """What was kept until then is right, nothing is lost, and the next one reads on from there."""
    graphs = Graphs(tiny_repository / "tiny-gpt" / "1")
    ids = np.random.default_rng(4).integers(2, 300, 50).tolist()

    def run():
        cold = Lane(graphs).answer(ids)
        lane = Lane(graphs, cache_of(graphs, 4), budget=8)
        lane.ask([3, 4], 60, streams=True)
        lane.step()
        gone = [lane.ask(ids, streams=True) for _ in range(3)]
        lane.waiting[:], later = lane.waiting[:1], lane.waiting[1:]
        for _ in range(3):
            lane.step()
        lane.lane.gone.append((gone[0], Cancelled()))
        lane.waiting += later[:1]
        for _ in range(3):
            lane.step()
        lane.cache.check_integrity()
        # The second sight has kept some pieces by now, and its step fails.
        prefill = lane.runner.prefill

        def broken(*_):
            raise RuntimeError

        lane.runner.prefill = broken
        with pytest.raises(RuntimeError):
            lane.step()
        lane.lane.fail(RuntimeError)
        lane.runner.prefill = prefill
        lane.cache.check_integrity()
        answer, logits, cached = lane.answer(ids)
        assert cold[:2] == (answer, logits)
        return cached

    assert in_a_loop(run) in range(8, 40)


def test_sources_that_an_encoder_fails_on_are_forgotten(tiny_repository):
    """The lane holds on to none of them, and answers them the next time."""
    graphs = Graphs(tiny_repository / "tiny-translate" / "1")

    def run():
        lane = Lane(graphs, cache_of(graphs, 8))
        encode = lane.runner.encode

        def broken(*_):
            raise RuntimeError

        lane.runner.encode = broken
        lane.ask([5] * 8)
        with pytest.raises(RuntimeError):
            lane.step()
        lane.lane.fail(RuntimeError)
        lane.runner.encode = encode
        return lane.lane.prefix_reader.trails, [lane.answer([5] * 8)[2] for _ in range(2)]

    assert ({}, [0, 8]) == in_a_loop(run)


def test_a_recurrent_state_goes_on_from_the_end_of_a_piece(tmp_path):
    """A prompt's state is kept where a piece ends, and a longer prompt goes on from it: the answer is the same."""
    toy = Toy(tmp_path)
    toy.manifest.text.ClearField("start_id")
    (state,) = toy.manifest.states
    state.ClearField("encoder_output")
    graphs = type("G", (), {"manifest": toy.manifest, "encoder": None, "mixed": None, "start_id": None})
    graphs.decoder = Session(toy.path, 1)
    ids = np.random.default_rng(5).integers(3, 50, 15).tolist()

    def run(*, beside):
        lane = Lane(graphs, cache_of(graphs, 4))
        if beside:
            lane.ask([7, 8, 9], 8)
            lane.step()
        return [lane.answer([*ids, last], 3) for last in (4, 4, 5, 5)]

    cold = in_a_loop(lambda: [Lane(graphs).answer([*ids, last], 3) for last in (4, 5)])
    warm, in_company = (in_a_loop(lambda beside=beside: run(beside=beside)) for beside in (False, True))
    assert [0, 0, 12, 12] == [cached for *_, cached in warm] == [cached for *_, cached in in_company]
    assert [cold[index][:2] for index in (0, 0, 1, 1)] == [each[:2] for each in warm]
    # The toy's products have other bits in company.
    tokens = [[token for token, _ in each[0]] for each in in_company]
    assert [[token for token, _ in cold[index][0]] for index in (0, 0, 1, 1)] == tokens
