"""LLaVA-OneVision of others: pictures in tiles are those of transformers, and so are logits and tokens."""

import io
import json
import random

import numpy as np
import pytest
import torch
from hf_models import LOGITS, NUM_LONG, change_config, converted, furthest, greedy
from PIL import Image
from safetensors.torch import load_file, save_file
from sight_kinds import (
    NEW_TOKENS,
    TILING,
    as_messages,
    change_processor,
    chat_of,
    made_seeing,
    pictures,
    served,
    their_inputs,
    their_tokens,
)

from weft_export.checkpoints.tiles import read_tiles
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_proto.tiling import most_places, tiled

MAX_TOKENS = 400
# Width and height: strips, portraits, what is smaller than a tile, what fits exactly, and what is much larger.
SIZES = ((57, 33), (20, 40), (12, 12), (90, 7), (3, 64), (5, 4), (41, 40), (160, 120), (24, 24))


def noise(width, height, seed=0):
    """A picture of noise."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def alone(picture):
    """A chat about one picture."""
    return [{"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": "What is it?"}]}]


def file_of(picture):
    """A picture as a PNG."""
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def as_source(ours, inputs, picture):
    """What our model takes of the pictures of their inputs: one in tiles, or several."""
    pixels = inputs["pixel_values"]
    if len(pixels) > 1:
        return (pixels[:, 0],)
    cut = tiled(ours.image, *picture.size)
    assert pixels.shape[1] == cut.num_tiles
    return pixels[0], torch.tensor([*cut.grid, *cut.kept, *cut.pooled])


def check(kind, seed, directory, sizes):
    """Hold one random model to transformers: tiles, logits and greedy tokens of chats with one picture and with two."""
    theirs, processor = made_seeing(kind, seed, directory)
    ours = converted(directory, max_tokens=MAX_TOKENS)
    shown = [noise(*size, seed) for size in sizes]
    for chat, picture in [(chat_of(pictures(2, seed)), None), *((alone(each), each) for each in shown)]:
        inputs = their_inputs(processor, chat)
        ids = inputs["input_ids"]
        source = as_source(ours, inputs, picture)
        if picture is not None:
            tiles, _ = read_tiles(file_of(picture), ours.image)
            # Of values that are divided by at least a quarter.
            assert np.abs(tiles - source[0].numpy()).max() <= 1e-5
        places = ids.masked_fill(ids == ours.text.image_id, ours.text.source_vocab_size)
        with torch.inference_mode():
            expected = theirs(**inputs).logits
            actual = ours.model.decode(places, *source)
            settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": NEW_TOKENS}
            written = theirs.generate(**inputs, **settings)[0, ids.shape[1] :].tolist()
            row = Row(None, places[0].tolist(), features=ours.model.shown(*source))
        assert LOGITS >= furthest(actual, expected)
        assert [written] == greedy(ours, [row], NEW_TOKENS)


@pytest.mark.parametrize("kind", TILING, ids=lambda kind: kind.name)
def test_a_model_of_tiles_writes_what_transformers_writes(kind, tmp_path):
    """Each number of places is theirs, logits are within 1e-4, and 24 greedy tokens are the same."""
    check(kind, 0, tmp_path, SIZES[:4])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", TILING, ids=lambda kind: kind.name)
def test_so_do_random_ones(kind, seed, tmp_path):
    """The same law for twenty random configurations, and pictures of every shape."""
    check(kind, seed, tmp_path, SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(each, id=each.name, marks=[pytest.mark.long] * bool(at))
                                  for at, each in enumerate(TILING)])  # fmt: skip
def test_a_model_of_tiles_is_served_as_transformers_generates(kind, tmp_path):
    """The same 24 greedy tokens to chats about one picture of each shape, about two, and about none."""
    theirs, processor = made_seeing(kind, 1, tmp_path / "theirs")
    said = [{"type": "text", "text": "Tell me more."}]
    chats = [chat_of(pictures(2, 1)), [{"role": "user", "content": said}]]
    chats += [alone(noise(*size, 1)) for size in SIZES]
    export_checkpoint(tmp_path / "theirs", tmp_path / "models" / "m" / "1", ExportOptions(max_tokens=MAX_TOKENS))
    written = [their_tokens(theirs, processor, each) for each in chats]
    assert written == served(tmp_path / "models" / "m" / "1", [as_messages(each) for each in chats])


GRIDS = [[12, 12], [24, 12]]
CONTRADICTIONS = {
    "num_image_tokens": ({"num_image_tokens": 4}, {}),
    "vision_feature_select_strategy": ({"vision_feature_select_strategy": "default"}, {}),
    "vision_feature_select_strategy is": ({}, {"vision_feature_select_strategy": "default"}),
    "vision_aspect_ratio": ({"vision_aspect_ratio": "anyres_max_4"}, {}),
    "must be anyres_max_1 to": ({"vision_aspect_ratio": "pad"}, {"vision_aspect_ratio": "pad"}),
    "image_grid_pinpoints": ({}, {"image_grid_pinpoints": GRIDS}),
    "image_token": ({"image_token": "<img>"}, {}),
    "image_token_index": ({}, {"image_token_index": 7}),
    "vision_feature_layer": ({}, {"vision_feature_layer": 0}),
    "vision_config": ({}, {"vision_config": None}),
    "model_type": ({}, {"vision_config": {"model_type": "clip_vision_model"}}),
}
# Of the processor of pictures.
PROCESSORS = {
    "image_processor_type": {"image_processor_type": "CLIPImageProcessor"},
    "image_grid_pinpoints": {"image_grid_pinpoints": GRIDS},
    "must have sides of 1 to 256": {"image_grid_pinpoints": [[13, 12]]},
    "must have 1 to 256 sizes": {"image_grid_pinpoints": [[12, 12]] * 257},
    "a height and a width": {"image_grid_pinpoints": [[12, "12"]]},
    "image_mean must have": {"image_mean": 0.5},
    "image_mean is no colour": {"image_mean": [0.5, -0.5, 0.5]},
    "resize_height": {"do_center_crop": True, "size": {"height": 14, "width": 14}, "crop_size": 12},
    "image_size": {"size": {"height": 24, "width": 24}},
}


def made_small(directory):
    """A model of tiles of 12 x 12."""
    seed = next(seed for seed in range(100) if TILING[0].draw(random.Random(seed))["vision_config"]["image_size"] == 12)
    made_seeing(TILING[0], seed, directory)


@pytest.mark.parametrize("why", CONTRADICTIONS)
def test_what_contradicts_itself_is_refused_by_name(why, tmp_path):
    """Config, processor and tokenizer say together what a picture is in a prompt."""
    made_small(tmp_path)
    convert(tmp_path, ExportOptions(), filled=False)
    of_processor, of_config = CONTRADICTIONS[why]
    change_processor(tmp_path, **of_processor)
    change_config(tmp_path, **of_config)
    with pytest.raises(CheckpointError, match=why):
        convert(tmp_path, ExportOptions(), filled=False)


@pytest.mark.parametrize("why", PROCESSORS)
def test_tiles_that_cannot_be_made_are_refused_by_name(why, tmp_path):
    """What the processor of pictures asks for, and the config with it."""
    made_small(tmp_path)
    path = tmp_path / "processor_config.json"
    given = json.loads(path.read_text())
    given["image_processor"] |= PROCESSORS[why]
    path.write_text(json.dumps(given))
    if not why.startswith("image_grid"):
        change_config(tmp_path, image_grid_pinpoints=given["image_processor"]["image_grid_pinpoints"])
    with pytest.raises(CheckpointError, match=why):
        convert(tmp_path, ExportOptions(), filled=False)


def test_the_context_holds_the_largest_picture(tmp_path):
    """Unless one is chosen: 2,048 tokens beside it, and no more than the model takes."""
    made_small(tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    for longest, chosen, expected in ((30_000, None, 2048), (None, None, 2048), (300, None, 300), (30_000, 200, 200)):
        change_config(tmp_path, text_config=text | {"max_position_embeddings": longest})
        checkpoint = convert(tmp_path, ExportOptions(max_tokens=chosen), filled=False).checkpoint
        beside = most_places(checkpoint.image) if expected == 2048 else 0
        assert expected + beside == checkpoint.text.max_total_tokens


def test_a_tower_saved_by_transformers_4_is_the_same(tmp_path):
    """There its names have a prefix more, and the weights of its head are there."""
    made_small(tmp_path)
    expected = {name: float(each.sum()) for name, each in converted(tmp_path).model.state_dict().items()}
    path = tmp_path / "model.safetensors"
    stored = {
        name.replace("vision_tower.", "vision_tower.vision_model."): each for name, each in load_file(path).items()
    }
    save_file(stored | {"vision_tower.vision_model.head.probe": torch.zeros(1, 1, 8)}, path)
    assert expected == {name: float(each.sum()) for name, each in converted(tmp_path).model.state_dict().items()}
