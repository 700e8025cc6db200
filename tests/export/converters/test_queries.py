"""BLIP-2 of others: pixels, prompts, logits and tokens are those of transformers, or a file is refused by name."""

import json

import numpy as np
import pytest
import torch
from hf_models import LOGITS, NUM_LONG, change_config, converted, furthest, greedy
from query_kinds import asked, inputs_of, made_queries
from sight_kinds import NEW_TOKENS, as_messages, change_processor, pictures, served
from test_splitting import change_within
from test_tiles import file_of

from weft_export.checkpoints.picture import read_picture
from weft_export.checkpoints.tokenizer import read_tokenizer
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_proto.chat.meter import Meter
from weft_proto.chat.names import ChatRefused
from weft_proto.chat.prompt import PromptTemplate

MAX_TOKENS, QUESTION = 80, "Question: what is here? Answer:"
SETTINGS = {"do_sample": False, "num_beams": 1, "max_new_tokens": NEW_TOKENS}


def check(seed, directory):
    """Hold one random model to transformers: pixels, logits of a picture and a question, and greedy tokens."""
    theirs, processor = made_queries(seed, directory, max_shard_size="20KB" if seed % 2 else "5GB")
    ours = converted(directory, max_tokens=MAX_TOKENS)
    (picture,) = pictures(1, seed)
    inputs = inputs_of(processor, picture, QUESTION)
    pixels = inputs["pixel_values"]
    assert np.abs(read_picture("", file_of(picture), ours.image) - pixels[0].numpy()).max() <= 1e-5
    ids, size = inputs["input_ids"], ours.text.source_vocab_size
    places = ids.masked_fill(ids == ours.text.image_id, size)
    with torch.inference_mode():
        expected = theirs(**inputs).logits
        actual = ours.model.decode(places, pixels)
        written = theirs.generate(**inputs, **SETTINGS)[0, ids.shape[1] :].tolist()
        row = Row(None, places[0].tolist(), features=ours.model.see(pixels))
    assert LOGITS >= furthest(actual, expected)
    assert [written] == greedy(ours, [row], NEW_TOKENS)


def test_a_model_with_queries_writes_what_transformers_writes(tmp_path):
    """Logits within 1e-4 at every place, and the same 24 greedy tokens."""
    check(0, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
def test_so_do_random_ones(seed, tmp_path):
    """The same law for twenty random configurations."""
    check(seed, tmp_path)


@pytest.mark.slow
def test_a_model_with_queries_is_served_as_transformers_generates(tmp_path):
    """The same 24 greedy tokens to a picture with a text and without, from the file on; and to a text alone."""
    theirs, processor = made_queries(1, tmp_path / "theirs")
    first, second = pictures(2, 1)
    export_checkpoint(tmp_path / "theirs", tmp_path / "models" / "m" / "1", ExportOptions(max_tokens=MAX_TOKENS))
    written = []
    for picture, text in ((first, QUESTION), (second, "")):
        inputs = inputs_of(processor, picture, text)
        found = theirs.generate(**inputs, **SETTINGS)[0, inputs["input_ids"].shape[1] :]
        written.append(found.tolist())
    inputs = processor.tokenizer(QUESTION, return_tensors="pt")
    found = theirs.language_model.generate(inputs["input_ids"], **SETTINGS)[0, inputs["input_ids"].shape[1] :]
    written.append(found.tolist())
    chats = [as_messages(asked(*each)) for each in ((first, QUESTION), (second, ""), (None, QUESTION))]
    assert written == served(tmp_path / "models" / "m" / "1", chats)


def prompt_of(checkpoint, messages):
    """The text of a prompt by the template of a bundle."""
    return PromptTemplate(checkpoint.text.chat, checkpoint.files[checkpoint.text.chat.template]).render(
        messages, Meter()
    )


@pytest.mark.parametrize("text", [QUESTION, "", " two  spaces ", "<pad> {{ x }}"])
def test_a_prompt_is_what_the_processor_writes(text, tmp_path):
    """The picture is the beginning, wherever it stands in the message. The text has the tokens that frame any."""
    _, processor = made_queries(0, tmp_path)
    checkpoint = convert(tmp_path, ExportOptions(), filled=False).checkpoint
    (picture,) = pictures(1)
    ids = inputs_of(processor, picture, text)["input_ids"][0].tolist()
    prompt = prompt_of(checkpoint, asked("", text))
    tokenizer = read_tokenizer(checkpoint, checkpoint.text.source_tokenizer)
    counts = {checkpoint.text.image_id: checkpoint.model.config.sight.num_places}
    found = tokenizer.encode(prompt, add_special_tokens=False).ids
    assert ids == [each for each in found for _ in range(counts.get(each, 1))]


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        (asked("", "a") * 2, "holds no conversation"),
        ([{"role": "system", "content": "a"}], "holds no conversation"),
        ([{"role": "user", "content": asked("", "a")[0]["content"] * 2}], "one picture is taken"),
    ],
)
def test_what_the_processor_has_no_prompt_for_is_refused(messages, why, tmp_path):
    """It takes one text, and one picture for it."""
    made_queries(0, tmp_path)
    checkpoint = convert(tmp_path, ExportOptions(), filled=False).checkpoint
    with pytest.raises(ChatRefused, match=why):
        prompt_of(checkpoint, messages)


def test_ends_are_those_of_the_decoders_own_part(tmp_path):
    """generate() hands over to the decoder, which knows no generation_config.json."""
    made_queries(0, tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 7, "num_beams": 4}))
    found = convert(tmp_path, ExportOptions(), filled=False)
    assert [1] == list(found.checkpoint.text.end_ids)
    assert found.checkpoint.decoding.WhichOneof("strategy") is None
    assert any("num_beams is 4" in each for each in found.notes)


PROCESSOR, CONFIG = "processor_config.json", "config.json"
REFUSED = {
    "num_query_tokens is 7": (PROCESSOR, "", {"num_query_tokens": 7}),
    "num_query_tokens is None": (PROCESSOR, "", {"num_query_tokens": None}),
    "num_query_tokens is 65": (CONFIG, "", {"num_query_tokens": 65}),
    "image_token_index": (CONFIG, "", {"image_token_index": 7}),
    "has no image_token": (CONFIG, "", {"image_token_index": None}),
    "vision_config": (CONFIG, "", {"vision_config": None}),
    "image_size": (CONFIG, "vision_config", {"image_size": 16}),
    "use_qformer_text_input": (CONFIG, "qformer_config", {"use_qformer_text_input": True}),
    "known are opt, t5": (CONFIG, "text_config", {"model_type": "mt5"}),
    "do_layer_norm_before": (CONFIG, "text_config", {"do_layer_norm_before": False}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_contradicts_itself_is_refused_by_name(name, tmp_path):
    """Config, processor and tokenizer say together what a picture is in a prompt."""
    file, part, changes = REFUSED[name]
    made_queries(0, tmp_path)
    convert(tmp_path, ExportOptions(), filled=False)
    change_within(tmp_path / file, part, **changes)
    with pytest.raises(CheckpointError, match=name):
        convert(tmp_path, ExportOptions(), filled=False)


def test_a_context_without_room_for_a_picture_is_refused(tmp_path):
    """A picture, a word and an answer must fit."""
    made_queries(0, tmp_path)
    places = convert(tmp_path, ExportOptions(), filled=False).checkpoint.model.config.sight.num_places
    convert(tmp_path, ExportOptions(max_tokens=places + 2), filled=False)
    with pytest.raises(CheckpointError, match="has no room for"):
        convert(tmp_path, ExportOptions(max_tokens=places + 1), filled=False)


def test_files_as_they_were_released_are_the_same(tmp_path):
    """There the processor of pictures has a file of its own, and the token of a picture is an object."""
    made_queries(0, tmp_path)
    expected = converted(tmp_path).model.config
    processor = json.loads((tmp_path / PROCESSOR).read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor.pop("image_processor")))
    token = {"content": "<image>", "lstrip": False, "normalized": False, "rstrip": False, "special": True}
    (tmp_path / PROCESSOR).write_text(json.dumps(processor))
    change_processor(tmp_path, image_token=token)
    change_config(tmp_path, image_text_hidden_size=256, use_decoder_only_language_model=True, initializer_factor=1.0)
    change_within(tmp_path / CONFIG, "vision_config", dropout=0.0, projection_dim=512, num_channels=3)
    change_within(tmp_path / CONFIG, "qformer_config", classifier_dropout=None, position_embedding_type="absolute")
    change_within(tmp_path / CONFIG, "text_config", prefix="</s>", torch_dtype="float16", _name_or_path="opt")
    assert expected == converted(tmp_path).model.config
