"""Models of others whose prompts hold pictures: our logits and tokens are theirs, or a file is refused by name."""

import pytest
import torch
import transformers
from hf_models import LOGITS, NUM_LONG, change_config, converted, furthest, greedy
from safetensors.torch import load_file, save_file
from sight_kinds import SEEING, change_processor, made_seeing, pictures

from weft_export.converters.convert import convert
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.converters.llava import sizes
from weft_export.errors import CheckpointError
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions

NEW_TOKENS, MAX_TOKENS = 24, 150


def chat_of(seen):
    """Two questions with a picture each, and one without, in one chat."""
    first, second = ({"type": "image", "image": each} for each in seen)
    asked = [[first, {"type": "text", "text": "What is this?"}], [{"type": "text", "text": "And here?"}, second]]
    turns = [{"role": "user", "content": each} for each in asked]
    answer = {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]}
    return [turns[0], answer, turns[1]]


def their_inputs(processor, messages):
    """What their model reads of a chat."""
    return processor.apply_chat_template(
        messages, tokenize=True, return_dict=True, return_tensors="pt", add_generation_prompt=True
    )


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


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", SEEING, ids=lambda kind: kind.name)
def test_so_do_random_ones(kind, seed, tmp_path):
    """The same law for twenty random configurations."""
    check(kind, seed, tmp_path)


def weights_of(directory):
    """The sums of our weights, by name."""
    return {name: float(each.sum()) for name, each in converted(directory).model.state_dict().items()}


def test_a_tower_saved_by_transformers_4_is_the_same(tmp_path):
    """There its names have a prefix more."""
    made_seeing(SEEING[0], 0, tmp_path)
    expected = weights_of(tmp_path)
    path = tmp_path / "model.safetensors"
    stored = {
        name.replace("vision_tower.", "vision_tower.vision_model."): each for name, each in load_file(path).items()
    }
    save_file(stored, path)
    assert expected == weights_of(tmp_path)


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
