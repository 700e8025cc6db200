"""Idefics 3 and SmolVLM of others: tiles and texts around them are those of transformers, and so are logits, tokens."""

import json

import pytest
import torch
from hf_models import LOGITS, NUM_LONG, change_config, converted, furthest, greedy
from sight_kinds import (
    NEW_TOKENS,
    SPLITTING,
    SPLITTING_TEMPLATE,
    TILE,
    as_messages,
    chat_of,
    made_seeing,
    pictures,
    served,
    their_inputs,
    their_tokens,
)
from test_tiles import SIZES, alone, file_of, noise

from weft_export.checkpoints.tiles import read_tiles
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_proto.tiling import most_places, most_tiles

MAX_TOKENS, PROCESSOR = 600, "processor_config.json"


def check(kind, seed, directory, sizes):
    """Hold one random model to transformers: tiles, logits and greedy tokens of chats with one picture and with two."""
    theirs, processor = made_seeing(kind, seed, directory, SPLITTING_TEMPLATE)
    ours = converted(directory, max_tokens=MAX_TOKENS)
    shown = [[noise(*size, seed)] for size in sizes]
    for chat, files in [(chat_of(pictures(2, seed)), pictures(2, seed)), *((alone(*each), each) for each in shown)]:
        inputs = their_inputs(processor, chat)
        ids = inputs["input_ids"]
        tiles = torch.cat([torch.from_numpy(read_tiles(file_of(each), ours.image)[0]) for each in files])
        assert 1e-5 >= (tiles - inputs["pixel_values"][0]).abs().max()
        places = ids.masked_fill(ids == ours.text.image_id, ours.text.source_vocab_size)
        with torch.inference_mode():
            expected = theirs(**inputs).logits
            actual = ours.model.decode(places, tiles)
            settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": NEW_TOKENS}
            written = theirs.generate(**inputs, **settings)[0, ids.shape[1] :].tolist()
            row = Row(None, places[0].tolist(), features=ours.model.shown(tiles))
        assert LOGITS >= furthest(actual, expected)
        assert [written] == greedy(ours, [row], NEW_TOKENS)


@pytest.mark.parametrize("kind", SPLITTING, ids=lambda kind: kind.name)
def test_a_model_that_splits_pictures_writes_what_transformers_writes(kind, tmp_path):
    """Tiles are theirs, logits are within 1e-4, and 24 greedy tokens are the same."""
    check(kind, 0, tmp_path, SIZES[:4])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", SPLITTING, ids=lambda kind: kind.name)
def test_so_do_random_ones(kind, seed, tmp_path):
    """The same law for twenty random configurations, and pictures of every shape."""
    check(kind, seed, tmp_path, SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(each, id=each.name, marks=[pytest.mark.long] * bool(at))
                                  for at, each in enumerate(SPLITTING)])  # fmt: skip
def test_a_model_that_splits_pictures_is_served_as_transformers_generates(kind, tmp_path):
    """The same 24 greedy tokens to chats about one picture of each shape, about two, and about none."""
    theirs, processor = made_seeing(kind, 1, tmp_path / "theirs", SPLITTING_TEMPLATE)
    said = [{"type": "text", "text": "Tell me more."}]
    between = [{"role": "user", "content": [said[0], {"type": "image", "image": noise(50, 30)}, said[0]]}]
    chats = [chat_of(pictures(2, 1)), [{"role": "user", "content": said}], between]
    chats += [alone(noise(*size, 1)) for size in SIZES]
    export_checkpoint(tmp_path / "theirs", tmp_path / "models" / "m" / "1", ExportOptions(max_tokens=MAX_TOKENS))
    written = [their_tokens(theirs, processor, each) for each in chats]
    assert written == served(tmp_path / "models" / "m" / "1", [as_messages(each) for each in chats])


def change_within(path, part, **fields):
    """Set keys of an object within a JSON file. None takes one away."""
    given = json.loads(path.read_text())
    inner = given[part] if part else given
    inner |= fields
    for name in [name for name, value in inner.items() if value is None]:
        del inner[name]
    path.write_text(json.dumps(given))


REFUSED = {
    "image_seq_len is 5": (0, PROCESSOR, "", {"image_seq_len": 5}),
    "image_seq_len is 169": (0, PROCESSOR, "", {"image_seq_len": None}),
    "image_token_id": (0, "config.json", "", {"image_token_id": 299}),
    "scale_factor": (0, "config.json", "", {"scale_factor": 3}),
    "scale_factor is 0": (0, "config.json", "", {"scale_factor": 0}),
    "image_size is 3": (0, "config.json", "vision_config", {"image_size": 3}),
    "patch_size": (0, "config.json", "vision_config", {"patch_size": [4, 2]}),
    "position_embedding": (0, "config.json", "vision_config", {"image_size": 48}),
    "qk_layer_norms": (0, "config.json", "text_config", {"qk_layer_norms": True}),
    "model_type": (0, "config.json", "vision_config", {"model_type": "clip_vision_model"}),
    "image_processor_type": (
        0,
        "processor_config.json",
        "image_processor",
        {"image_processor_type": "CLIPImageProcessor"},
    ),
    "size is": (0, PROCESSOR, "image_processor", {"size": {"height": 24, "width": 24}}),
    "max_image_size is": (0, PROCESSOR, "image_processor", {"max_image_size": {"height": 24}}),
    "size.longest_edge must be": (0, PROCESSOR, "image_processor", {"size": {"longest_edge": 4097}}),
    "makes 289 tiles": (0, PROCESSOR, "image_processor", {"size": {"longest_edge": 17 * TILE}}),
    "do_image_splitting": (0, PROCESSOR, "image_processor", {"do_image_splitting": "yes"}),
    "fake_image_token": (1, "tokenizer_config.json", "", {"fake_image_token": "<fake>"}),
    "global_image_token": (1, "tokenizer_config.json", "", {"extra_special_tokens": {"global_image_token": "<all>"}}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_contradicts_itself_or_cannot_be_done_is_refused_by_name(why, tmp_path):
    """Config, processor and tokenizer say together what a picture is in a prompt."""
    at, file, part, fields = REFUSED[why]
    made_seeing(SPLITTING[at], 0, tmp_path)
    convert(tmp_path, ExportOptions())
    change_within(tmp_path / file, part, **fields)
    with pytest.raises(CheckpointError, match=why):
        convert(tmp_path, ExportOptions())


@pytest.mark.parametrize("token", ["<fake_token_around_image>", "<end_of_utterance>"])
def test_a_tokenizer_that_their_processor_would_add_to_is_refused(token, tmp_path):
    """It would get an id that the words of the model may not have."""
    made_seeing(SPLITTING[0], 0, tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = tmp_path / name
        path.write_text(path.read_text().replace(token, "<other>"))
    with pytest.raises(CheckpointError, match=token):
        convert(tmp_path, ExportOptions(), filled=False)


def test_the_context_holds_the_largest_picture(tmp_path):
    """Unless one is chosen: 2,048 tokens beside it and four more for each tile, and no more than the model takes."""
    made_seeing(SPLITTING[0], 0, tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    for longest, chosen, expected in ((30_000, None, 2048), (700, None, 700), (30_000, 500, 500)):
        change_config(tmp_path, text_config=text | {"max_position_embeddings": longest})
        checkpoint = convert(tmp_path, ExportOptions(max_tokens=chosen), filled=False).checkpoint
        beside = most_places(checkpoint.image) + 4 * most_tiles(checkpoint.image) if expected == 2048 else 0
        assert expected + beside == checkpoint.text.max_total_tokens


def test_fields_of_files_of_transformers_4_are_known(tmp_path):
    """As SmolVLM's released config.json has them, with the processor in a file of its own."""
    made_seeing(SPLITTING[0], 0, tmp_path)
    expected = converted(tmp_path)
    given = json.loads((tmp_path / "config.json").read_text())
    old = {"qk_layer_norms": False, "perceiver_config": {"attention_dropout": 0.0}, "pixel_shuffle_factor": 4}
    old |= {"neftune_noise_alpha": 0.0, "use_resampler": False, "rope_interleaved": False, "is_llama_config": True}
    vision = {"max_image_size": {"longest_edge": TILE}, "size": {"longest_edge": 48}, "use_base_siglip": False}
    change_config(
        tmp_path,
        text_config=given["text_config"] | old,
        vision_config=given["vision_config"] | vision | {"model_type": "idefics3"},
        use_reentrant_checkpointing=False,
        vocab_size=340,
    )
    processor = json.loads((tmp_path / "processor_config.json").read_text())
    images = processor.pop("image_processor")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(images))
    (tmp_path / "processor_config.json").write_text(json.dumps(processor))
    found = converted(tmp_path)
    assert expected.image == found.image
    for name, each in expected.model.state_dict().items():
        assert torch.equal(each, found.model.state_dict()[name])
