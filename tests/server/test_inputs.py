"""What a request brings is refused on arrival, by its field, when the model does not take it."""

import asyncio
import io
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tokenizers
from PIL import Image
from tokenizers import Regex, models, normalizers, pre_tokenizers, processors

from loaded import Loaded, ask, golden_request
from weft_export.checkpoints.tokenizer import check_tokenizers, encode_source, read_tokenizer
from weft_export.errors import CheckpointError
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle.load import Bundle
from weft_server.errors import BundleError, DeadlineExpired, InvalidRequest
from weft_server.loading.build import _source_tokenizer
from weft_server.models.model import NUM_WORKERS
from weft_server.preprocessing.image_file import BoundedImageFile
from weft_server.preprocessing.inputs import InputReader
from weft_server.preprocessing.prompts import Prompt
from weft_server.preprocessing.tokenizer import Tokenizer, truncation_of

LIMITS = dict.fromkeys(("max_image_bytes", "max_image_pixels", "max_audio_bytes", "max_audio_s"), 1)


def refusal(directory, **request):
    """The field and the message that a request is refused with."""

    async def run():
        async with Loaded(directory / "1") as model:
            with pytest.raises(InvalidRequest) as refused:
                await ask(model, **request)
            return refused.value.field, refused.value.message

    return asyncio.run(run())


@pytest.mark.parametrize("text", ["the big dog", " translate : the big dog", "translate the big dog", "Shorten : a"])
def test_a_text_must_begin_with_a_prefix_of_the_model(tiny_repository, text):
    """None of the prefixes at the very beginning: refused, and the sentence lists them."""
    expected = "text must begin with one of 'translate : ', 'shorten : '"
    assert ("text", expected) == refusal(tiny_repository / "tiny-t5", text=text)


@pytest.mark.parametrize("text", ["translate : ", "shorten :  \n"])
def test_a_prefix_alone_is_an_empty_text(tiny_repository, text):
    """Nothing but white space behind it: refused as any empty text is."""

    async def run():
        async with Loaded(tiny_repository / "tiny-t5" / "1") as model:
            with pytest.raises(InvalidRequest) as refused:
                await ask(model, text=text)
            assert ("text", "EMPTY_INPUT") == (refused.value.field, refused.value.reason)

    asyncio.run(run())


def test_a_prefix_is_part_of_the_source(tiny_repository):
    """Either prefix is taken, as tokens of the source; ids are the caller's business."""

    async def run():
        async with Loaded(tiny_repository / "tiny-t5" / "1") as model:
            lengths = []
            for text in ("translate : the big dog", "shorten : the big dog"):
                answer = await ask(model, text=text)
                ids = model.source_tokenizer.encode(text)
                lengths.append(len(ids))
                assert len(ids) == answer.completion.usage.input_tokens
                of_ids = await ask(model, token_ids=common_pb2.TokenIds(ids=ids))
                assert answer.completion.token_ids == of_ids.completion.token_ids
            await ask(model, token_ids=common_pb2.TokenIds(ids=[5, 6]))

    asyncio.run(run())


@pytest.mark.parametrize("text", ["....", "...!", "\u0301."])
def test_a_text_of_which_nothing_is_left_is_an_empty_text(tmp_path, text):
    """The tokens that a tokenizer puts around every text are none of it: a model has nothing to read but them."""
    source = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "[START]": 1, "[END]": 2}, unk_token="[UNK]"))
    source.normalizer = normalizers.Replace(Regex("[.!\u0301]+$"), "")
    source.post_processor = processors.TemplateProcessing(
        single="[START] $A [END]", special_tokens=[("[START]", 1), ("[END]", 2)]
    )
    source.save(str(tmp_path / "source.json"))
    manifest = bundle_pb2.BundleManifest(
        task=common_pb2.TASK_CLASSIFY_TEXT, text={"max_source_tokens": 9, "source_vocab_size": 3}
    )
    reader = InputReader(manifest, Tokenizer(tmp_path / "source.json"), **LIMITS)
    for read in (reader.read_text, reader.split_text):
        with pytest.raises(InvalidRequest) as refused:
            read(text, "text")
        assert ("text holds nothing that the model's tokenizer keeps", "EMPTY_INPUT") == (
            refused.value.message,
            refused.value.reason,
        )
    assert 3 == reader.read_text("a" + text, "text").num_tokens
    assert 3 == len(reader.split_text("a" + text, "text"))


def prompted(tmp_path, prompts, **text):
    """A manifest of a classifier of two texts with prompts, of which the first is the default, and its tokenizer."""
    source = tokenizers.Tokenizer(models.WordLevel({"a": 0, "[START]": 1, "[END]": 2, "b": 3}, unk_token="a"))
    source.add_special_tokens(["[START]", "[END]"])
    source.normalizer = normalizers.Replace(Regex("[.!]"), "")
    source.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    source.post_processor = processors.TemplateProcessing(
        single="[START] $A [END]", pair="[START] $A [END] $B [END]", special_tokens=[("[START]", 1), ("[END]", 2)]
    )
    source.save(str(tmp_path / "source.json"))
    spec = {"max_source_tokens": 9, "source_vocab_size": 4, "source_tokenizer": "source.json", **text}
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_CLASSIFY_TEXT, text=spec)
    for name, prompt in prompts.items():
        manifest.text.prompts.add(name=name, text=prompt)
    manifest.text.default_prompt_name = next(iter(prompts))
    return manifest, Tokenizer(tmp_path / "source.json", truncation_of(manifest.text))


def checkpoint_of(tmp_path, manifest):
    """What an exporter sees of the same."""
    return SimpleNamespace(
        text=manifest.text, text_spec=manifest.text, files={"source.json": (tmp_path / "source.json").read_bytes()}
    )


@pytest.mark.parametrize("side", common_pb2.TruncationSide.values())
@pytest.mark.parametrize("separator", [{}, {"separator_id": 2}], ids=str)
def test_a_prompt_alone_is_no_text(tmp_path, separator, side):
    """Nothing of the caller's text is left: refused, whatever stands before it."""
    manifest, tokenizer = prompted(tmp_path, {"query": "b b "}, truncation_side=side, **separator)
    reader = InputReader(manifest, tokenizer, **LIMITS)
    readers = [reader.read_text, lambda text, field: reader.read_pair(text, "b")]
    for read in readers:
        with pytest.raises(InvalidRequest) as refused:
            read("..", "text")
        assert ("text holds nothing that the model's tokenizer keeps", "EMPTY_INPUT") == (
            refused.value.message,
            refused.value.reason,
        )
    assert [1, 3, 3, 0, 2] == reader.read_text("x.", "text").array.tolist()
    checkpoint = checkpoint_of(tmp_path, manifest)
    exporter = read_tokenizer(checkpoint, "source.json")
    assert [1, 3, 3, 0, 2] == encode_source(checkpoint, exporter, "x.")
    with pytest.raises(CheckpointError, match="holds nothing that the tokenizer keeps"):
        encode_source(checkpoint, exporter, "..")


def test_what_a_prompt_spells_is_not_the_callers_fault(tmp_path):
    """The caller's text alone is held to the token that stands between two texts."""
    manifest, tokenizer = prompted(tmp_path, {"query": "b [END] "}, separator_id=2)
    reader = InputReader(manifest, tokenizer, **LIMITS)
    assert [1, 3, 2, 0, 2] == reader.read_text("a", "text").array.tolist()
    for prompt in (None, ""):
        with pytest.raises(InvalidRequest, match="text spells the token that stands between two texts"):
            reader.read_text("a [END]", "text", prompt=None if prompt is None else Prompt(prompt))


SPELLS = "text.prompts has 'passage', which spells the token 2 of text.separator_id"


@pytest.mark.parametrize("side", common_pb2.TruncationSide.values())
def test_a_bundle_whose_prompt_spells_what_divides_two_texts_is_refused(tmp_path, side):
    """By its name, as an export is. Where nothing is divided, it may."""
    prompts = {"query": "b ", "passage": "b [END] "}
    manifest, tokenizer = prompted(tmp_path, prompts, truncation_side=side, separator_id=2)
    bundle, checkpoint = Bundle("judge", 1, tmp_path, manifest), checkpoint_of(tmp_path, manifest)
    with pytest.raises(BundleError, match=SPELLS):
        _source_tokenizer(bundle)
    with pytest.raises(CheckpointError, match=SPELLS):
        check_tokenizers(checkpoint)
    manifest.text.ClearField("separator_id")
    assert tokenizer.num_ids == _source_tokenizer(bundle).num_ids
    check_tokenizers(checkpoint)


@pytest.mark.parametrize("field", ["source_language", "target_language"])
def test_a_model_without_languages_takes_none(tiny_repository, field):
    """A text-to-text model is told what to do by its prefix."""
    expected = f"{field} must be empty: this model takes no language"
    request = {"text": "translate : the big dog", field: "en"}
    assert (field, expected) == refusal(tiny_repository / "tiny-t5", **request)


def test_a_language_is_one_that_the_model_lists(tiny_repository):
    """Its own language may be named or left out; another is refused with the list."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1") as model:
            named = await ask(model, **golden_request(model, source_language="en", target_language="es"))
            unnamed = await ask(model, **golden_request(model))
            assert named.completion.text == unnamed.completion.text

    asyncio.run(run())
    refused = refusal(tiny_repository / "tiny-translate", text="the dog", source_language="fr")
    assert ("source_language", "source_language must be one of en, not 'fr'") == refused


def picture():
    """A file of noise that takes a while to decode."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (512, 512, 3), np.uint8)).save(
        file, "JPEG", progressive=True
    )
    return file.getvalue()


def test_what_nobody_waits_for_any_more_does_not_begin(tiny_repository):
    """Jobs that are late or cancelled before a worker is free are dropped, and the next one is done."""

    async def run():
        async with Loaded(tiny_repository / "tiny-caption" / "1") as model:
            free, done = threading.Event(), []
            busy = [asyncio.create_task(model.work(lambda _: free.wait())) for _ in range(NUM_WORKERS)]
            late = [asyncio.create_task(model.work(lambda _: done.append("late"), deadline=0.0)) for _ in range(9)]
            gone = [asyncio.create_task(model.work(lambda _: done.append("gone"))) for _ in range(9)]
            await asyncio.sleep(0)
            for task in gone:
                task.cancel()
            await asyncio.gather(*gone, return_exceptions=True)
            free.set()
            await model.work(lambda _: done.append("wanted"))
            await asyncio.gather(*busy)
            outcomes = await asyncio.gather(*late, return_exceptions=True)
            assert [DeadlineExpired] * 9 == [type(outcome) for outcome in outcomes]
            assert ["wanted"] == done

    asyncio.run(run())


def test_pictures_that_nobody_waits_for_are_not_read_on(tiny_repository, monkeypatch):
    """However many are being decoded when their callers go, none is read any further, and the next one is."""
    given_up, after, begun = threading.Event(), [], threading.Event()
    read = BoundedImageFile.read

    def watched(self, size=-1, /):
        begun.set()
        data = read(self, size)
        if given_up.is_set():
            after.append(self)
        return data

    async def run():
        async with Loaded(tiny_repository / "tiny-caption" / "1") as model:
            with monkeypatch.context() as patch:
                patch.setattr(BoundedImageFile, "read", watched)
                image = common_pb2.Image(data=picture())
                tasks = [asyncio.create_task(ask(model, image=image)) for _ in range(4)]
                await asyncio.to_thread(begun.wait)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                given_up.set()
                await model.work(lambda _: None)
                assert len(after) <= NUM_WORKERS  # each was asked for just before
            assert (await ask(model, **golden_request(model))).completion.token_ids

    asyncio.run(run())
