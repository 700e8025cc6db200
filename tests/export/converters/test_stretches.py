"""Gemma 3 and PaliGemma of others: pixels, prompts, logits and tokens are those of transformers, or it is refused."""

import json
import warnings

import numpy as np
import pytest
import torch
from hf_models import LOGITS, NUM_LONG, converted, furthest, greedy
from safetensors.torch import load_file, save_file
from sight_kinds import NEW_TOKENS, as_messages, chat_of, pictures, served, their_inputs
from stretch_kinds import GEMMA3, PALIGEMMA, STRETCHES, TOKENS, made_stretches
from test_sight import rows_of
from test_splitting import change_within
from test_tiles import file_of

from weft_export.checkpoints.picture import read_picture
from weft_export.checkpoints.tokenizer import read_tokenizer
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError, ExportError
from weft_export.export import as_asked, check_device, export_checkpoint
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_proto.chat.meter import Meter
from weft_proto.chat.names import ChatRefused
from weft_proto.chat.prompt import PromptTemplate
from weft_proto.sight import MAX_STRETCH
from weft_proto.v1 import bundle_pb2

MAX_TOKENS, QUESTION = 200, "answer en what is here?"
SAID = {"type": "text", "text": QUESTION}


def asked(shown, first=0):
    """What a user says to a PaliGemma: pictures, of which so many stand behind the text."""
    parts = [{"type": "image", "image": each} for each in shown]
    return [{"role": "user", "content": [*parts[first:], SAID, *parts[:first]]}]


def inputs_of(kind, processor, chat):
    """What their model reads of a chat."""
    if kind is GEMMA3:
        return their_inputs(processor, chat)
    (message,) = chat
    text = "".join("<image>" if part["type"] == "image" else part["text"] for part in message["content"])
    shown = [part["image"] for part in message["content"] if part["type"] == "image"]
    if shown:
        with warnings.catch_warnings():
            # Of arrays that it makes of tensors, for training.
            warnings.simplefilter("ignore", DeprecationWarning)
            inputs = processor(images=[shown], text=text, return_tensors="pt")
        return {name: each for name, each in inputs.items() if name != "labels"}
    # Theirs wants a picture.
    inputs = processor.tokenizer(f"{processor.tokenizer.bos_token}{text}\n", return_tensors="pt")
    return {**inputs, "token_type_ids": torch.zeros_like(inputs["input_ids"])}


def check(kind, seed, directory):
    """Hold one random model to transformers: pixels, logits of a chat with two pictures, and greedy tokens."""
    theirs, processor = made_stretches(kind, seed, directory, max_shard_size="20KB" if seed % 2 else "5GB")
    ours = converted(directory, max_tokens=MAX_TOKENS)
    shown = pictures(2, seed)
    inputs = inputs_of(kind, processor, chat_of(shown) if kind is GEMMA3 else asked(shown))
    for picture, pixels in zip(shown, inputs["pixel_values"], strict=True):
        assert np.abs(read_picture("", file_of(picture), ours.image) - pixels.numpy()).max() <= 1e-5
    ids, size = inputs["input_ids"], ours.text.source_vocab_size
    places = ids.masked_fill(ids == ours.text.image_id, size)
    settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": NEW_TOKENS}
    with torch.inference_mode():
        expected = theirs(**inputs).logits
        actual = ours.model.decode(places, inputs["pixel_values"])
        written = theirs.generate(**inputs, **settings)[0, ids.shape[1] :].tolist()
        row = Row(None, places[0].tolist(), features=ours.model.see(inputs["pixel_values"]))
    assert LOGITS >= furthest(actual, expected)
    assert [written] == greedy(ours, [row], NEW_TOKENS)
    return ours.model, (places, inputs["pixel_values"]), expected


@pytest.mark.parametrize("kind", STRETCHES, ids=lambda kind: kind.name)
def test_a_model_of_stretches_writes_what_transformers_writes(kind, tmp_path, monkeypatch):
    """Logits within 1e-4 at every place, and the same 24 greedy tokens. Read in one direction, it says other ones."""
    model, inputs, expected = check(kind, 0, tmp_path)
    monkeypatch.setattr(model, "together", lambda *_: None)
    with torch.inference_mode():
        assert furthest(model.decode(*inputs), expected) > 100 * LOGITS


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", STRETCHES, ids=lambda kind: kind.name)
def test_so_do_random_ones(kind, seed, tmp_path):
    """The same law for twenty random configurations."""
    check(kind, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", rows_of([GEMMA3, *PALIGEMMA[::-1]]))
def test_a_model_of_stretches_is_served_as_transformers_generates(kind, tmp_path):
    """The same 24 greedy tokens to chats with two pictures, one and none, from the files of the pictures on."""
    theirs, processor = made_stretches(kind, 1, tmp_path / "theirs")
    shown = pictures(4, 1)
    chats = [asked(shown[:2], 1), asked(shown[2:3]), asked([]), asked(shown[3:], 1)]
    if kind is GEMMA3:
        chats += [chat_of(shown[:2]), chat_of(shown[2:])]
    export_checkpoint(tmp_path / "theirs", tmp_path / "models" / "m" / "1", ExportOptions(max_tokens=MAX_TOKENS))
    settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": NEW_TOKENS}
    written = []
    for each in chats:
        inputs = inputs_of(kind, processor, each)
        with torch.inference_mode():
            found = theirs.generate(**inputs, **settings)[0, inputs["input_ids"].shape[1] :]
        written.append(found.tolist())
    assert written == served(tmp_path / "models" / "m" / "1", [as_messages(each) for each in chats])


def prompt_of(directory, messages):
    """The text of a prompt by the template of a bundle."""
    checkpoint = convert(directory, ExportOptions(), filled=False).checkpoint
    spec = checkpoint.text.chat
    return PromptTemplate(spec, checkpoint.files[spec.template]).render(messages, Meter())


@pytest.mark.parametrize("template", ["  {{ 'a' }}\n{% if true %}\n b <start_of_image>{% endif %}  \n", None])
def test_texts_around_a_picture_change_nothing_else_of_a_template(template, tmp_path):
    """Spaces and ends of lines stay as they are at both ends, whatever the template begins and ends with."""
    _, processor = made_stretches(GEMMA3, 0, tmp_path)
    if template is not None:
        processor.chat_template = template
        processor.save_pretrained(tmp_path)
    messages = [{"role": "user", "content": [{"type": "image"}, SAID]}]
    expected = processor.apply_chat_template(messages, add_generation_prompt=True)
    begins, place, ends = (TOKENS[f"{each}_token"] for each in ("boi", "image", "eoi"))
    assert begins in expected
    assert expected.replace(begins, f"\n\n{begins}{place}{ends}\n\n") == prompt_of(tmp_path, messages)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_chat_with_a_paligemma_is_the_prompt_that_its_processor_writes(first, tmp_path):
    """Pictures before and behind the text; the text's first token stands behind the last of them."""
    _, processor = made_stretches(PALIGEMMA[0], 0, tmp_path)
    checkpoint = convert(tmp_path, ExportOptions(), filled=False).checkpoint
    chat = asked(pictures(2), first)
    ids = inputs_of(PALIGEMMA[0], processor, chat)["input_ids"][0].tolist()
    text = prompt_of(tmp_path, [{**chat[0], "content": [{**each, "image": ""} for each in chat[0]["content"]]}])
    tokenizer = read_tokenizer(checkpoint, checkpoint.text.source_tokenizer)
    places = checkpoint.model.config.sight.num_places
    counts = {checkpoint.text.image_id: places}
    assert ids == [each for each in tokenizer.encode(text).ids for _ in range(counts.get(each, 1))]
    with pytest.raises(ChatRefused, match="holds no conversation"):
        prompt_of(tmp_path, [*chat, *chat])


PROCESSOR, CONFIG = "processor_config.json", "config.json"
REFUSED = {
    "image_seq_length is 7": (GEMMA3, PROCESSOR, "", {"image_seq_length": 7}),
    "image_seq_length is 5": (PALIGEMMA[0], PROCESSOR, "image_processor", {"image_seq_length": 5}),
    "do_pan_and_scan": (GEMMA3, PROCESSOR, "image_processor", {"do_pan_and_scan": True}),
    "mm_tokens_per_image": (GEMMA3, CONFIG, "", {"mm_tokens_per_image": 5}),
    "use_bidirectional_attention": (GEMMA3, CONFIG, "text_config", {"use_bidirectional_attention": True}),
    "model_type": (GEMMA3, CONFIG, "text_config", {"model_type": "gemma2"}),
    "image_token_index": (GEMMA3, CONFIG, "", {"image_token_index": 7}),
    "vision_config": (PALIGEMMA[0], CONFIG, "", {"vision_config": None}),
    "known are gemma, gemma2": (PALIGEMMA[0], CONFIG, "text_config", {"model_type": "llama"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_contradicts_itself_is_refused_by_name(name, tmp_path):
    """Config, processor and tokenizer say together what a picture is in a prompt, and crops are not read."""
    kind, file, part, changes = REFUSED[name]
    made_stretches(kind, 0, tmp_path)
    convert(tmp_path, ExportOptions(), filled=False)
    change_within(tmp_path / file, part, **changes)
    with pytest.raises(CheckpointError, match=name):
        convert(tmp_path, ExportOptions(), filled=False)


def test_crops_are_refused_in_the_older_file_too(tmp_path):
    """By a file `transformers` 5.23 makes none, but by its caller: who wrote it there means to have them."""
    made_stretches(GEMMA3, 0, tmp_path)
    processor = json.loads((tmp_path / PROCESSOR).read_text())
    older = {**processor.pop("image_processor"), "do_pan_and_scan": None}
    (tmp_path / PROCESSOR).write_text(json.dumps(processor))
    for crops in (None, True):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(older | {"do_pan_and_scan": crops}))
        if crops is None:
            convert(tmp_path, ExportOptions(), filled=False)
    with pytest.raises(CheckpointError, match=r"preprocessor_config\.json: do_pan_and_scan is True"):
        convert(tmp_path, ExportOptions(), filled=False)


def test_what_no_run_could_read_at_once_is_refused(tmp_path):
    """A PaliGemma's prompt is one stretch."""
    made_stretches(PALIGEMMA[0], 0, tmp_path)
    change_within(tmp_path / CONFIG, "text_config", max_position_embeddings=2 * MAX_STRETCH)
    convert(tmp_path, ExportOptions(max_tokens=MAX_STRETCH + 1), filled=False)
    with pytest.raises(CheckpointError, match="stretches of up to 8,193 places"):
        convert(tmp_path, ExportOptions(max_tokens=MAX_STRETCH + 2), filled=False)


@pytest.mark.parametrize("kind", [GEMMA3, PALIGEMMA[0]], ids=lambda kind: kind.name)
def test_devices_blocks_and_mixed_runs_are_refused(kind, tmp_path):
    """Nobody has tried them there."""
    made_stretches(kind, 0, tmp_path)
    checkpoint = convert(tmp_path, ExportOptions(), filled=False).checkpoint
    for precision in (bundle_pb2.PRECISION_FP16, bundle_pb2.PRECISION_BF16):
        with pytest.raises(ExportError, match="read in both directions"):
            check_device(checkpoint, precision)
    for options in ({"mixed_runs": True}, {"precision": "fp16", "paged": True}):
        with pytest.raises(ExportError):
            as_asked(checkpoint, ExportOptions(**options))


def weights_of(directory):
    """Our sizes, and the sums of our weights by name."""
    model = converted(directory).model
    return model.config, {name: float(each.sum()) for name, each in model.state_dict().items()}


@pytest.mark.parametrize("kind", STRETCHES, ids=lambda kind: kind.name)
def test_files_as_they_were_released_are_the_same(kind, tmp_path):
    """There the tower's names have a prefix more, and pixels, windows and rotations stand by other names."""
    made_stretches(kind, 3, tmp_path)
    expected = weights_of(tmp_path)
    path = tmp_path / "model.safetensors"
    nested = {
        name.replace("vision_tower.", "vision_tower.vision_model."): each for name, each in load_file(path).items()
    }
    save_file(nested, path)
    processor = json.loads((tmp_path / PROCESSOR).read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor.pop("image_processor")))
    (tmp_path / PROCESSOR).write_text(json.dumps(processor))
    config = json.loads((tmp_path / CONFIG).read_text())
    text, rope = config["text_config"], config["text_config"].pop("rope_parameters")
    del text["use_bidirectional_attention"]
    if kind is GEMMA3:
        text["rope_theta"] = rope["full_attention"]["rope_theta"]
        text["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
        for each in ("model_specific_special_tokens", "extra_special_tokens"):
            settings.pop(each, None)
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | TOKENS))
    else:
        text["rope_theta"] = rope["rope_theta"]
        config["vision_config"] |= {"num_image_tokens": 256, "projector_hidden_act": "gelu_fast"}
        config |= {"ignore_index": -100, "_vocab_size": 257152}
    (tmp_path / CONFIG).write_text(json.dumps(config))
    assert expected == weights_of(tmp_path)
