"""Models of others whose prompts hold pictures: our logits and tokens are theirs, or a file is refused by name."""

import copy

import pytest
import torch
import transformers
from hf_models import LOGITS, NUM_LONG, change_config, converted, furthest, greedy
from sight_kinds import (
    NEW_TOKENS,
    SEEING,
    TEMPLATE,
    as_messages,
    change_processor,
    chat_of,
    made_seeing,
    pictures,
    served,
    their_inputs,
    their_tokens,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from weft_export.converters.convert import convert
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.converters.llava import sizes
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions

MAX_TOKENS = 150


def check(kind, seed, directory):
    """Hold one random model to transformers: logits of a chat with two pictures, and greedy tokens."""
    theirs, processor = made_seeing(kind, seed, directory, max_shard_size="20KB" if seed % 2 else "5GB")
    ours = converted(directory, max_tokens=MAX_TOKENS)
    inputs = their_inputs(processor, chat_of(pictures(2, seed)))
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


@pytest.mark.parametrize("kind", SEEING, ids=lambda kind: kind.name)
def test_a_model_that_sees_writes_what_transformers_writes(kind, tmp_path):
    """Logits within 1e-4 at every place of a chat with two pictures, and the same 24 greedy tokens."""
    check(kind, 0, tmp_path)


def rows_of(kinds):
    """One row a kind; all but one are for the long target."""
    return [pytest.param(kind, id=kind.name, marks=[pytest.mark.long] * bool(at)) for at, kind in enumerate(kinds)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", rows_of(SEEING))
def test_a_model_that_sees_is_served_as_transformers_generates(kind, tmp_path):
    """The same 24 greedy tokens to chats with two pictures, one and none, from the files of the pictures on."""
    theirs, processor = made_seeing(kind, 1, tmp_path / "theirs")
    shown = pictures(4, 1)
    said = [{"type": "text", "text": "Tell me more."}]
    chats = [chat_of(shown[:2]), chat_of(shown[2:]), [{"role": "user", "content": said}]]
    chats.append([{"role": "user", "content": [*said, {"type": "image", "image": shown[3]}]}])
    export_checkpoint(tmp_path / "theirs", tmp_path / "models" / "m" / "1", ExportOptions(max_tokens=MAX_TOKENS))
    written = [their_tokens(theirs, processor, each) for each in chats]
    assert written == served(tmp_path / "models" / "m" / "1", [as_messages(each) for each in chats])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", SEEING, ids=lambda kind: kind.name)
def test_so_do_random_ones(kind, seed, tmp_path):
    """The same law for twenty random configurations."""
    check(kind, seed, tmp_path)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2"])
def test_what_a_config_of_transformers_4_leaves_out_is_what_its_classes_take(kind, tmp_path):
    """The released ones name no width of the decoder, and no number of its heads and layers."""
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "CLIPImageProcessor"}')
    given = {"text_config": {"model_type": kind}, "vision_config": {"model_type": "clip_vision_model"}}
    theirs = transformers.LlavaConfig(**given)
    hf = HfCheckpoint(tmp_path, Fields({"model_type": "llava", **given}), Generation(), frozenset())
    ours, text, vision = sizes(hf), theirs.text_config, theirs.vision_config
    asked = (text.vocab_size, text.hidden_size, text.num_attention_heads, text.num_hidden_layers)
    assert asked == (ours.vocab_size, ours.d_model, ours.num_heads, ours.num_layers)
    assert (text.num_key_value_heads, text.intermediate_size) == (ours.num_kv_heads, ours.d_ff)
    seen = (vision.image_size, vision.patch_size, vision.hidden_size, vision.num_hidden_layers)
    assert seen == (ours.sight.image_height, ours.sight.patch_size, ours.sight.d_model, ours.sight.num_layers)
    assert ((theirs.vision_feature_layer + vision.num_hidden_layers + 1,), False) == (
        ours.sight.feature_layers,
        ours.sight.class_token,
    )


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2"])
def test_how_long_texts_may_be_is_left_out_too(kind, tmp_path):
    """YaRN turns heads by that length where it has none of its own."""
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "CLIPImageProcessor"}')
    rope = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}
    given = {
        "text_config": {"model_type": kind, "rope_parameters": rope},
        "vision_config": {"model_type": "clip_vision_model"},
    }
    config = transformers.LlavaConfig(**copy.deepcopy(given)).text_config
    expected, _ = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    hf = HfCheckpoint(tmp_path, Fields({"model_type": "llava", **given}), Generation(), frozenset())
    torch.testing.assert_close(torch.tensor(sizes(hf).rotations[0].frequencies), expected)


CONTRADICTIONS = {
    "patch_size": ({"patch_size": 8}, {}),
    "vision_feature_select_strategy": ({"vision_feature_select_strategy": "none"}, {}),
    "num_additional_image_tokens": ({"num_additional_image_tokens": 2}, {}),
    "image_token": ({"image_token": "<img>"}, {}),
    "image_token_index": ({}, {"image_token_index": 7}),
    "image_token_id": ({}, {"image_token_id": 7}),
    "vision_feature_layer": ({}, {"vision_feature_layer": 0}),
    "text_config": ({}, {"text_config": None}),
    "vision_config": ({}, {"vision_config": None}),
    "model_type": ({}, {"vision_config": {"model_type": "pixtral"}}),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_what_contradicts_itself_is_refused_by_name(name, tmp_path):
    """Config, processor and tokenizer say together what a picture is in a prompt."""
    made_seeing(SEEING[0], 0, tmp_path)
    convert(tmp_path, ExportOptions(), filled=False)
    of_processor, of_config = CONTRADICTIONS[name]
    change_processor(tmp_path, **of_processor)
    change_config(tmp_path, **of_config)
    with pytest.raises(CheckpointError, match=name):
        convert(tmp_path, ExportOptions(), filled=False)


def test_a_context_without_room_for_a_picture_is_refused(tmp_path):
    """A picture, a word and an answer must fit."""
    made_seeing(SEEING[0], 0, tmp_path)
    sight = convert(tmp_path, ExportOptions(), filled=False).checkpoint.model.config.sight
    convert(tmp_path, ExportOptions(max_tokens=sight.num_places + 2), filled=False)
    with pytest.raises(CheckpointError, match="has no room for"):
        convert(tmp_path, ExportOptions(max_tokens=sight.num_places + 1), filled=False)


NO_PLACE = {
    "texts alone": TEMPLATE.replace("<image>\\n", ""),
    "another token": TEMPLATE.replace("<image>", "<img>"),
    "no parts": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
}


@pytest.mark.parametrize("name", NO_PLACE)
def test_a_template_without_a_place_for_a_picture_is_noted(name, tmp_path):
    """The model is exported for texts, and who exports it is told."""
    for template, notes in ((TEMPLATE, 0), (NO_PLACE[name], 1)):
        made_seeing(SEEING[0], 0, tmp_path / str(notes), template)
        told = convert(tmp_path / str(notes), ExportOptions(), filled=False).notes
        assert notes == sum("no chat template has a place for a picture, which is <image>" in each for each in told)
