"""Laws of scores: those of torch, those of decoding, the same bits in any company, and errors that name the field."""

import asyncio
import itertools
import math
import random
import shutil
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from polyglot import PREFIX, polyglot
from samples import WRITERS, sample
from tiny import CHECKPOINTS, INT8
from tiny_parts import END

from loaded import Loaded, ask, golden_request, score
from waiting import until
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.checkpoints.sound import wav_of
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_export.quantization.integer_products import quantised
from weft_proto.sound import spoken_ids
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.engine.score_lane import GivenAnswer
from weft_server.errors import (
    BundleError,
    CannotScore,
    DeadlineExpired,
    Draining,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
)
from weft_server.loading.golden import verify_golden
from weft_server.requests.score import _answer_ids
from weft_server.source import Pixels

# One that answers questions is not asked: ScoreService takes none.
SCORED = [name for name in WRITERS if sample(name).model.scores]
ALL = [*SCORED, *(f"{name}-int8" for name in INT8 if name in SCORED)]
# In nats. At int8 a value between two levels may fall to the other one, in a run of other sums.
NEAR = {bundle_pb2.PRECISION_FP32: 1e-4, bundle_pb2.PRECISION_INT8: 0.5}


def ids(*numbers):
    """Token ids as a message."""
    return common_pb2.TokenIds(ids=numbers)


def run(directory, body, **settings):
    """Run a coroutine function over a model that is loaded from a directory."""

    async def over():
        async with Loaded(directory, **settings) as model:
            return await body(model)

    return asyncio.run(over())


def source_of(model):
    """The golden request as ScoreService takes it."""
    request = golden_request(model)
    if "language" in request:
        request["source_language"] = request.pop("language")
    return request


def read(model, request):
    """The source of a request, as a function for the model's workers."""
    if "audio" in request:
        return lambda wanted: model.reader.read_window(request["audio"], "audio", wanted)
    if "image" in request:
        return lambda wanted: model.reader.read_image(request["image"], wanted)
    return lambda _: model.reader.read_text(request["text"], "text", model.languages.plain)


def torch_log_probs(name, model, source, target, prefix=()):
    """The log-probabilities [tokens, vocab] behind a target's tokens, in torch."""
    checkpoint = CHECKPOINTS[name.removesuffix("-int8")]()
    network = (quantised(checkpoint) if name.endswith("-int8") else checkpoint).model.eval()
    tensors = (torch.from_numpy(source.array)[None],)
    fed = [model.manifest.text.start_id, *model.manifest.text.prefix_ids, *prefix, *target[:-1]]
    if TASKS[model.manifest.task].takes_prompt:
        fed, tensors = [*source.array.tolist(), *target[:-1]], ()
    elif "lengths" in source.feeds([source], source.num_tokens, 0):
        tensors = (*tensors, torch.tensor([tensors[0].shape[1]], dtype=torch.int32))
    with torch.inference_mode():
        logits = network.decode(torch.tensor([fed]), *tensors)[0]
    return logits[-len(target) :].log_softmax(dim=-1).numpy()


@pytest.mark.parametrize("name", ALL)
def test_scores_are_those_of_torch_and_of_decoding(name, tiny_bundle):
    """The answer that the model gives has the log-probabilities that it had then; any other target has torch's."""

    async def laws(model):
        near = NEAR[model.manifest.precision]
        source = source_of(model)
        done = (await ask(model, **golden_request(model), return_scores=True)).completion
        again = await score(model, **source, target_ids=ids(*done.token_ids), num_top_tokens=20)

        np.testing.assert_allclose(again.token_log_probs, done.token_log_probs, atol=near)
        assert done.token_ids == again.token_ids
        assert list(again.tokens) == model.target_tokenizer.pieces(done.token_ids)
        assert math.isclose(again.total, math.fsum(again.token_log_probs))
        assert done.usage.input_tokens == again.usage.input_tokens
        assert len(done.token_ids) == again.usage.output_tokens
        assert (model.name, 1) == (again.model.name, again.model.version)

        text = model.manifest.text
        drawn = random.Random(0).choices(range(text.target_vocab_size), k=min(7, text.max_new_tokens))
        other = await score(model, **source, target_ids=ids(*drawn), num_top_tokens=3)
        spoken = ()
        if "audio" in source:
            spoken = spoken_ids(model.manifest.audio, source["source_language"], to_english=False)
        expected = torch_log_probs(name, model, await model.work(read(model, source)), drawn, spoken)
        chosen = expected[np.arange(len(drawn)), drawn]
        np.testing.assert_allclose(other.token_log_probs, chosen, atol=near)
        for row, top in zip(expected, other.top_tokens, strict=True):
            assert len(top.token_ids) == len(top.log_probs) == len(top.tokens) == min(3, len(row))
            assert sorted(top.log_probs, reverse=True) == list(top.log_probs)
            np.testing.assert_allclose(top.log_probs, np.sort(row)[::-1][: len(top.log_probs)], atol=near)
            np.testing.assert_allclose(top.log_probs, row[list(top.token_ids)], atol=near)

    run(tiny_bundle(name), laws)


CROWDS = [
    "tiny-translate",
    "tiny-generate-int8",
    "tiny-decoder",
    "tiny-hybrid",
    "tiny-state-space",
    "tiny-t5",
    "tiny-rnn",
    "tiny-attention-rnn-int8",
]


@pytest.mark.parametrize("name", CROWDS)
def test_bits_do_not_depend_on_company(name, tiny_bundle):
    """Many targets at once, of all lengths, have the bits that each has alone, whatever top_tokens others ask for."""

    async def laws(model):
        text, draw = model.manifest.text, random.Random(0)
        longest = min(11, text.max_new_tokens)
        requests = []
        for number in range(24):
            source = draw.choices(range(text.source_vocab_size), k=draw.randint(1, 5))
            target = draw.choices(range(text.target_vocab_size), k=draw.randint(1, longest))
            requests.append({"token_ids": ids(*source), "target_ids": ids(*target), "num_top_tokens": number % 4})
        alone = [await score(model, **each) for each in requests]
        before = model.metrics.batch_size.snapshot()[1]
        together = await asyncio.gather(*(score(model, **each) for each in requests))
        for one, other in zip(alone, together, strict=True):
            assert one.token_log_probs == other.token_log_probs
            assert list(one.top_tokens) == list(other.top_tokens)
        rows = model.metrics.batch_size.snapshot()[1] - before
        assert 24 == rows

    run(tiny_bundle(name), laws, lanes=1)


def test_recordings_of_other_samples_and_as_many_places_share_no_run(tiny_repository):
    """A model that hears samples takes those of one length together. Others are scored, each with its own bits."""

    async def laws(model):
        clips = [wav_of(torch.sin(torch.arange(number) / 3), 10_000) for number in (3000, 3100, 3000, 3100)]
        asked = [{"audio": common_pb2.Audio(data=clip), "target_ids": ids(5, 6)} for clip in clips]
        assert 1 == len({(await model.work(read(model, each))).bucket for each in asked})
        alone = [await score(model, **each) for each in asked]
        together = await asyncio.gather(*(score(model, **each) for each in asked))
        assert [each.token_log_probs for each in alone] == [each.token_log_probs for each in together]

    run(tiny_repository / "tiny-waveform" / "1", laws, lanes=1)


def test_a_picture_whose_caption_is_scored_counts_its_bytes():
    """It waits with its pixel values, beside the answer's ids."""
    pixels = Pixels(np.zeros((3, 64, 64), np.float32), (4, 4))
    given = GivenAnswer(np.arange(3), pixels, np.arange(1), 64)
    assert given.num_bytes == pixels.num_bytes + 3 * 8
    assert 3 * 8 == GivenAnswer(np.arange(3), None, np.arange(1), 64).num_bytes


def test_a_target_text_is_an_answer_of_the_model(tiny_repository):
    """It is tokenized without the tokens of a source, and ends with the end token."""

    async def laws(model):
        source = golden_request(model)
        by_text = await score(model, **source, target_text="w3 w4")
        framed = model.target_tokenizer.encode_framed("w3 w4")
        by_ids = await score(model, **source, target_ids=ids(*framed, model.manifest.text.end_ids[0]))

        assert by_text.token_ids == by_ids.token_ids
        assert by_text.token_log_probs == by_ids.token_log_probs
        assert not by_text.top_tokens

    run(tiny_repository / "tiny-generate" / "1", laws)


def test_languages_and_prefix_stand_where_decoding_has_them(tmp_path):
    """A translator between languages scores its answer as it decoded it, and says which language is missing."""
    checkpoint = polyglot()
    save_checkpoint(tmp_path / "checkpoint", checkpoint)
    export_checkpoint(tmp_path / "checkpoint", tmp_path / "m" / "1", ExportOptions(no_explain=True))

    async def laws(model):
        for source, target in itertools.product(("en", "pt"), ("pt", "zh-Hant")):
            about = {"text": "the big dog eats", "source_language": source, "target_language": target}
            decoding = common_pb2.Decoding(max_new_tokens=6)
            done = (await ask(model, **about, decoding=decoding, return_scores=True)).completion
            again = await score(model, **about, target_ids=ids(*done.token_ids))
            np.testing.assert_allclose(again.token_log_probs, done.token_log_probs, atol=1e-4)
        with pytest.raises(InvalidRequest) as refused:
            await score(model, text="dog", source_language="en", target_ids=ids(END))
        assert "target_language" == refused.value.field
        room = model.manifest.text.max_total_tokens - len(PREFIX) - 2
        about["target_ids"] = ids(*[END] * (room + 1))
        if room < model.manifest.text.max_new_tokens:
            with pytest.raises(InvalidRequest, match="tokens long"):
                await score(model, **about)

    run(tmp_path / "m" / "1", laws)


def test_what_is_spoken_and_in_which_language_the_target_is_tells(tiny_repository):
    """A given transcription, in either language, and a given translation have the scores that they are decoded with."""

    async def laws(model):
        audio = golden_request(model)["audio"]
        for language, to_english in itertools.product(("de", "en"), (False, True)):
            about = {"language": language, "to_english": to_english}
            done = (await ask(model, audio=audio, **about, return_scores=True)).completion
            about = {"source_language": language, "target_language": "EN" if to_english else ""}
            again = await score(model, audio=audio, **about, target_ids=ids(*done.token_ids))
            np.testing.assert_allclose(again.token_log_probs, done.token_log_probs, atol=1e-4)

    run(tiny_repository / "tiny-speech" / "1", laws)


TOO_MANY = [1] * 100
GENERATE = {"text": "w3 w4", "target_text": "w5"}
A_SECOND = common_pb2.Audio(data=wav_of(torch.sin(torch.arange(4000) / 3), 4000))
SPOKEN = {"audio": A_SECOND, "source_language": "en", "target_text": "el"}
REFUSALS = [
    ("tiny-generate", {"target_text": "w5"}, "source", "is required: text or token_ids"),
    ("tiny-generate", {"text": "w3"}, "target", "is required: target_text or target_ids"),
    ("tiny-generate", {**GENERATE, "target_text": ""}, "target_text", "must not be empty"),
    ("tiny-generate", {"text": "w3", "target_ids": ids()}, "target_ids.ids", "must not be empty"),
    ("tiny-generate", {"text": "w3", "target_ids": ids(*TOO_MANY)}, "target_ids.ids", "is 100 tokens long"),
    ("tiny-generate", {"text": "w3", "target_ids": ids(3, 999)}, "target_ids.ids[1]", "below the vocabulary size"),
    ("tiny-generate", {**GENERATE, "target_text": "w5 " * 2000}, "target_text", "characters long"),
    ("tiny-generate", {**GENERATE, "text": ""}, "text", "must not be empty"),
    ("tiny-generate", {**GENERATE, "num_top_tokens": 21}, "num_top_tokens", "must be 0..20, not 21"),
    ("tiny-generate", {**GENERATE, "source_language": "en"}, "source_language", "is for models that translate"),
    ("tiny-generate", {**GENERATE, "target_language": "en"}, "target_language", "is for models that translate"),
    ("tiny-generate", {**GENERATE, "request_id": "é"}, "request_id", "printable ASCII"),
    ("tiny-generate", {"image": common_pb2.Image(data=b"x"), "target_text": "w5"}, "image", "give text or token_ids"),
    ("tiny-caption", {"text": "w3", "target_text": "w5"}, "text", "give image"),
    ("tiny-speech", {"text": "w3", "target_text": "el"}, "text", "give audio"),
    ("tiny-speech", {"audio": A_SECOND, "target_text": "el"}, "source_language", "is required: one of de, en"),
    ("tiny-speech", {**SPOKEN, "target_language": "de"}, "target_language", "must be empty, or en"),
    ("tiny-speech", SPOKEN, "audio", "takes at most 0.4 s of a recording"),
    ("tiny-generate", {"audio": A_SECOND, "target_text": "w5"}, "audio", "give text or token_ids"),
    ("tiny-generate", {**GENERATE, "model": common_pb2.ModelSelector()}, "model.name", "is required"),
]


@pytest.mark.parametrize(
    ("name", "request_", "field", "text"), REFUSALS, ids=[f"{r[2]}-{n}" for n, r in enumerate(REFUSALS)]
)
def test_a_wrong_request_is_refused_by_its_field(name, request_, field, text, tiny_repository):
    """Each is INVALID_ARGUMENT, names its field, and leaves nothing behind."""

    async def refused(model):
        with pytest.raises(InvalidRequest) as refusal:
            await score(model, **request_)
        assert field == refusal.value.field
        assert text in refusal.value.message
        assert 0 == model.scorer.stats().queued

    run(tiny_repository / name / "1", refused)


@pytest.mark.parametrize(
    ("given", "refusal"),
    [([], "holds nothing that the model's tokenizer"), ([3, 9], "has a token that the model cannot")],
)
def test_a_target_text_is_one_that_the_model_could_answer(given, refusal):
    """Of tokens that it has, and of one at least. Behind them stands its end."""
    text = bundle_pb2.TextSpec(target_vocab_size=9, end_ids=[1, 2])
    model = SimpleNamespace(manifest=bundle_pb2.BundleManifest(text=text))
    model.target_tokenizer = SimpleNamespace(encode_framed=lambda _: given)
    with pytest.raises(InvalidRequest, match=refusal):
        _answer_ids(model, "any", "target_text")
    given = [3, 8]
    assert [3, 8, 1] == _answer_ids(model, "any", "target_text")


def test_prompt_and_target_must_fit_together(tiny_repository):
    """A target that the prompt leaves no room for is refused, and one that just fits is scored."""

    async def laws(model):
        total = model.manifest.text.max_total_tokens
        prompt = ids(*[5] * (total - 2))
        fits = await score(model, token_ids=prompt, target_ids=ids(6, 7))
        assert 2 == len(fits.token_log_probs)
        with pytest.raises(InvalidRequest, match=f"{total - 2} prompt tokens leave 2") as refused:
            await score(model, token_ids=prompt, target_ids=ids(6, 7, 8))
        assert "target_ids.ids" == refused.value.field
        most = model.manifest.text.max_new_tokens
        with pytest.raises(InvalidRequest, match=f"the model gives at most {most}$"):
            await score(model, token_ids=ids(5), target_ids=ids(*[6] * (most + 1)))

    run(tiny_repository / "tiny-generate" / "1", laws)

    async def has_no_prompt(model):
        most = model.manifest.text.max_new_tokens
        with pytest.raises(InvalidRequest, match=f"the model gives at most {most}$") as refused:
            await score(model, text="w3", target_text="w3 " * most)
        assert "target_text" == refused.value.field

    run(tiny_repository / "tiny-translate" / "1", has_no_prompt)


def test_who_cannot_score(tiny_repository, tmp_path):
    """A model that produces no text is the wrong one, and a bundle without the graph says that it cannot."""

    async def no_text(model):
        with pytest.raises(InvalidRequest, match="produces no text") as refused:
            await score(model, text="w3", target_text="w4")
        assert ("model.name", "WRONG_INPUT_KIND") == (refused.value.field, refused.value.reason)
        with pytest.raises(ModelNotFound):
            await score(model, model=common_pb2.ModelSelector(name="other"), text="w3", target_text="w4")

    run(tiny_repository / "tiny-text" / "1", no_text)
    save_checkpoint(tmp_path / "checkpoint", CHECKPOINTS["tiny-generate"]())
    options = ExportOptions(no_explain=True, no_score=True)
    report = export_checkpoint(tmp_path / "checkpoint", tmp_path / "m" / "1", options)
    assert [bundle_pb2.GRAPH_ROLE_DECODER] == [graph.role for graph in report.manifest.graphs]

    async def without(model):
        await verify_golden(model)
        with pytest.raises(CannotScore) as refused:
            await score(model, text="w3", target_text="w4")
        assert ("model.name", "CANNOT_SCORE") == (refused.value.field, refused.value.reason)
        with pytest.raises(CannotScore) as refused:
            await ask(model, text="w3", return_prompt_scores=True)
        assert "return_prompt_scores" == refused.value.field

    run(tmp_path / "m" / "1", without)


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-generate-int8", "tiny-gpt"])
def test_a_prompts_own_log_probabilities(name, tiny_bundle):
    """They are those of all its tokens but the first, of texts and ids; a prompt of one token has none."""

    async def laws(model):
        text = golden_request(model)["text"]
        prompt = await model.work(lambda _: model.reader.read_text(text, "text", model.languages.plain))
        asked = {"decoding": common_pb2.Decoding(max_new_tokens=3), "return_prompt_scores": True}
        token_ids = prompt.array.tolist()
        expected = torch_log_probs(name, model, prompt, [0])
        first = type(prompt)(prompt.array[:1])
        expected = torch_log_probs(name, model, first, token_ids[1:])[np.arange(len(token_ids) - 1), token_ids[1:]]
        for source in ({"text": text}, {"token_ids": ids(*token_ids)}):
            done = (await ask(model, **source, **asked)).completion
            np.testing.assert_allclose(done.prompt_log_probs, expected, atol=NEAR[model.manifest.precision])
        assert not (await ask(model, token_ids=ids(5), **asked)).completion.prompt_log_probs
        assert not (await ask(model, text=text, decoding=asked["decoding"])).completion.prompt_log_probs

    run(tiny_bundle(name), laws)


def test_waiting_is_bounded(tiny_repository):
    """One more request than may wait is refused at once, before anything is computed for it."""

    async def laws(model):
        model.scorer.reserve(count=2)
        with pytest.raises(Overloaded) as refused:
            await score(model, **GENERATE)
        assert "QUEUE_FULL" == refused.value.reason
        with pytest.raises(Overloaded):
            await ask(model, text="w3 w4", return_prompt_scores=True)
        assert 0 == model.metrics.generated_tokens.value
        model.scorer.release()
        assert (await score(model, **GENERATE)).token_log_probs
        model.scorer.release()

    run(tiny_repository / "tiny-generate" / "1", laws, max_queued_requests=2, lanes=1)


def held_after(owner, name):
    """Let no call of a method return before the event that is returned."""
    free, method = threading.Event(), getattr(owner, name)

    def held(*args):
        result = method(*args)
        free.wait()
        return result

    setattr(owner, name, held)
    return free


def test_who_is_being_answered_has_no_place_of_the_scorers(tiny_repository):
    """A prompt waits there once it is answered: until then nobody is refused for it, and it is not counted."""

    async def laws(model):
        free = held_after(model.engine.lanes[0], "step")
        try:
            first = asyncio.create_task(ask(model, text="w3 w4", return_prompt_scores=True))
            await until(lambda: model.engine.stats().running)
            assert (0, 1) == (model.stats().queued, model.stats().running)
            assert (await score(model, **GENERATE)).token_log_probs
            second = asyncio.create_task(ask(model, text="w3 w4", return_prompt_scores=True))
            await until(lambda: model.engine.stats().queued)
            assert (1, 0) == (model.stats().queued, model.scorer.stats().queued)
        finally:
            free.set()
        assert all(each.completion.prompt_log_probs for each in await asyncio.gather(first, second))

    run(tiny_repository / "tiny-generate" / "1", laws, max_queued_requests=1, lanes=1)


@pytest.mark.parametrize(
    ("bound", "reason"), [("max_queued_tokens", "TOKEN_BUDGET"), ("max_queued_requests", "QUEUE_FULL")]
)
def test_a_finished_answer_is_not_lost_to_the_scorers_bounds(tiny_repository, bound, reason):
    """A prompt that was taken gets its scores, however much waits there. Nothing new is let in meanwhile."""

    async def laws(model):
        free, answering = (
            held_after(model.scorer.lanes[0].sessions["places"], "run"),
            held_after(model.engine.lanes[0], "step"),
        )
        try:
            running = asyncio.create_task(score(model, **GENERATE))
            await until(lambda: model.scorer.stats().running)
            prompt = asyncio.create_task(ask(model, text="w3 w4", return_prompt_scores=True))
            await until(lambda: model.engine.stats().running)
            waiting = asyncio.create_task(score(model, **GENERATE))
            await until(lambda: model.scorer.stats().queued_tokens)
            of_one = model.scorer.stats().queued_tokens
            answering.set()
            await until(lambda: model.scorer.stats().queued_tokens > of_one or prompt.done())
            for late in (score(model, **GENERATE), ask(model, text="w3 w4", return_prompt_scores=True)):
                with pytest.raises(Overloaded) as refused:
                    await late
                assert reason == refused.value.reason
        finally:
            answering.set()
            free.set()
        assert (await prompt).completion.prompt_log_probs
        assert all(each.token_log_probs for each in await asyncio.gather(running, waiting))

    run(tiny_repository / "tiny-generate" / "1", laws, lanes=1, **{bound: 1})


def test_a_prompts_scores_are_no_second_request(tiny_repository):
    """What its answer took is no time of a queue. Its tokens, and a caller who goes, are counted once."""
    asked = {"text": "w3 w4", "return_prompt_scores": True}

    async def laws(model):
        usage = (await ask(model, **asked)).completion.usage
        buckets, _ = model.metrics.request_prompt_tokens.snapshot()
        assert (usage.input_tokens, 1) == (model.metrics.prompt_tokens.value, buckets[-1][1])
        free, answering = (
            held_after(model.scorer.lanes[0].sessions["places"], "run"),
            held_after(model.engine.lanes[0], "step"),
        )
        try:
            running = asyncio.create_task(score(model, **GENERATE))
            await until(lambda: model.scorer.stats().running)
            prompt = asyncio.create_task(ask(model, **asked))
            await until(lambda: model.engine.stats().running)
            await asyncio.sleep(0.02)  # counted as waiting, this would break the bound below
            answered = time.monotonic()
            answering.set()
            await until(lambda: model.scorer.stats().queued)
            assert model.stats().oldest_queued_s <= time.monotonic() - answered
            prompt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await prompt
        finally:
            answering.set()
            free.set()
        await running
        gone = {stage: counter.value for (name, stage), counter in model.metrics.counters.items() if "cancel" in name}
        assert {"explain": 1} == gone

    run(tiny_repository / "tiny-generate" / "1", laws, lanes=1)


def test_deadline_cancel_and_drain(tiny_repository):
    """Who has waited too long, has gone, or is still there at the end of a drain gets no scores, and leaves nothing."""

    async def laws(model):
        with pytest.raises(DeadlineExpired):
            await score(model, **GENERATE, deadline=time.monotonic() - 1)
        gone = asyncio.create_task(score(model, **GENERATE))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        await until(lambda: not model.scorer.stats().running)
        model.cancel_all(Draining)
        with pytest.raises(Draining):
            await score(model, **GENERATE)

    run(tiny_repository / "tiny-generate" / "1", laws)


def test_a_graph_that_scores_otherwise_is_refused(tiny_repository, tmp_path):
    """A bundle whose SCORE graph is that of another model is never ready: its golden answer is scored otherwise."""
    bundle = shutil.copytree(tiny_repository / "tiny-generate" / "1", tmp_path / "m" / "1")

    async def laws(model):
        session = model.scorer.lanes[0].sessions["places"]
        run_graph = session.run

        def shifted(feeds):
            outputs = run_graph(feeds)
            return outputs | {"log_probs": outputs["log_probs"] - 1}

        await verify_golden(model)
        session.run = shifted
        with pytest.raises(BundleError, match="the golden answer is scored"):
            await verify_golden(model)

    run(bundle, laws)
