"""LLaVA-OneVision of others: pictures in tiles are those of transformers, and so are logits and tokens."""

import io

import numpy as np
import pytest
import torch
from hf_models import LOGITS, NUM_LONG, converted, furthest, greedy
from PIL import Image
from sight_kinds import TILING, as_messages, chat_of, made_seeing, pictures, served, their_inputs

from weft_export.checkpoints.tiles import read_tiles
from weft_export.export import export_checkpoint
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_proto.tiling import tiled

NEW_TOKENS, MAX_TOKENS = 24, 400
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
    written = []
    for each in chats:
        inputs = their_inputs(processor, each)
        with torch.inference_mode():
            found = theirs.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=NEW_TOKENS)
        written.append(found[0, inputs["input_ids"].shape[1] :].tolist())
    assert written == served(tmp_path / "models" / "m" / "1", [as_messages(each) for each in chats])
