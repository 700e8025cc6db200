"""Qwen2-VL and Qwen2.5-VL of others: sizes, pixels, positions, logits and tokens are those of transformers."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from cell_kinds import CELLS, FIRST_ID, PATCH, TOKENS, made_cells
from hf_models import LOGITS, NUM_LONG, change_config, converted, furthest, greedy
from sight_kinds import NEW_TOKENS, as_messages, chat_of, pictures, served, their_inputs, their_tokens
from test_splitting import change_within
from test_tiles import SIZES, alone, file_of, noise
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from weft_export.checkpoints.tiles import read_tiles
from weft_export.converters.convert import convert
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.converters.qwen_vl import names as names_of
from weft_export.converters.qwen_vl import sizes
from weft_export.converters.sources import source_of
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.families.qwen_vl import QwenVl
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_proto.fitting import fit
from weft_proto.tiling import most_places
from weft_proto.v1 import bundle_pb2

MAX_TOKENS, PROCESSOR = 400, "processor_config.json"
SECOND = 1


def cells_of(inputs, merge):
    """The cells of each picture of their inputs, whose patches stand behind each other with two equal frames."""
    found, at = [], 0
    for _, height, width in inputs["image_grid_thw"].tolist():
        patches = inputs["pixel_values"][at : at + height * width]
        at += height * width
        laid = patches.reshape(height // merge, width // merge, merge, merge, 3, 2, PATCH, PATCH)
        assert torch.equal(laid[..., 0, :, :], laid[..., 1, :, :])
        cells = laid[..., 0, :, :].permute(0, 1, 4, 2, 5, 3, 6)
        found.append(cells.reshape(1, *cells.shape[:3], merge * PATCH, merge * PATCH))
    return found


def check(kind, seed, directory, sizes):
    """Hold one random model to transformers: pixels, positions, logits and greedy tokens of chats with pictures."""
    theirs, processor = made_cells(kind, seed, directory, max_shard_size="20KB" if seed % 2 else "5GB")
    ours = converted(directory, max_tokens=MAX_TOKENS)
    shown = [[noise(*size, seed)] for size in sizes]
    for chat, files in [(chat_of(pictures(2, seed)), pictures(2, seed)), *((alone(*each), each) for each in shown)]:
        inputs = their_inputs(processor, chat)
        ids = inputs["input_ids"]
        source = cells_of(inputs, theirs.config.vision_config.spatial_merge_size)
        for picture, cells in zip(files, source, strict=True):
            assert np.abs(read_tiles(file_of(picture), ours.image)[0] - cells.numpy()).max() <= 1e-5
        places = ids.masked_fill(ids == ours.text.image_id, ours.text.source_vocab_size)
        with torch.inference_mode():
            positions, delta = theirs.model.get_rope_index(ids, inputs["mm_token_type_ids"], inputs["image_grid_thw"])
            offsets = ours.model.offsets(places, *source)
            assert torch.equal(positions[:, 0].T, torch.arange(ids.shape[1])[:, None] + offsets[0, :-1])
            assert [int(delta)] * 3 == offsets[0, -1].tolist()
            expected = theirs(**inputs).logits
            actual = ours.model.decode(places, *source)
            settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": NEW_TOKENS}
            written = theirs.generate(**inputs, **settings)[0, ids.shape[1] :].tolist()
            row = Row(None, places[0].tolist(), features=ours.model.shown(*source), offsets=offsets)
        assert LOGITS >= furthest(actual, expected)
        assert [written] == greedy(ours, [row], NEW_TOKENS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CELLS, ids=lambda kind: kind.name)
def test_a_model_of_cells_writes_what_transformers_writes(kind, tmp_path):
    """Pixels and positions are theirs, logits are within 1e-4, and 24 greedy tokens are the same."""
    # Its windows have 3 x 3 places, and its sections begin anew.
    check(kind, 4, tmp_path, SIZES[:4])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", CELLS, ids=lambda kind: kind.name)
def test_so_do_random_ones(kind, seed, tmp_path):
    """The same law for twenty random configurations, and pictures of every shape."""
    check(kind, seed, tmp_path, SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(each, id=each.name, marks=[pytest.mark.long] * bool(at))
                                  for at, each in enumerate(CELLS[::-1])])  # fmt: skip
def test_a_model_of_cells_is_served_as_transformers_generates(kind, tmp_path):
    """The same 24 greedy tokens to chats about one picture of each shape, about two, and about none, all at once."""
    theirs, processor = made_cells(kind, 1, tmp_path / "theirs")
    said = [{"type": "text", "text": "Tell me more."}]
    chats = [chat_of(pictures(2, 1)), [{"role": "user", "content": said}]]
    chats += [alone(noise(*size, 1)) for size in SIZES]
    export_checkpoint(tmp_path / "theirs", tmp_path / "models" / "m" / "1", ExportOptions(max_tokens=MAX_TOKENS))
    written = [their_tokens(theirs, processor, each) for each in chats]
    assert written == served(tmp_path / "models" / "m" / "1", [as_messages(each) for each in chats])


def test_a_picture_is_made_as_large_as_transformers_makes_it():
    """Whatever its size, and whatever sizes are allowed: floating-point roundings are theirs."""
    rng = np.random.default_rng(0)
    for _ in range(3000):
        cell = int(rng.choice([8, 28]))
        least = int(rng.integers(1, 40 * cell**2))
        most = int(rng.integers(least, 50 * cell**2))
        image = bundle_pb2.ImageSpec(height=cell, width=cell, grid_rows=1, grid_columns=1)
        image.tiling.max_pixels, image.tiling.min_pixels = most, least
        height, width = (int(each) for each in np.exp(rng.uniform(0, np.log(3000), 2)))
        if max(height, width) > 200 * min(height, width):
            continue
        expected = smart_resize(height, width, cell, least, most)
        assert expected == fit(image, width, height).inner[::-1]


def weights_of(directory):
    """Our weights and their sizes."""
    checkpoint = converted(directory)
    return checkpoint.model.config, {name: float(each.sum()) for name, each in checkpoint.model.state_dict().items()}


@pytest.mark.parametrize("kind", CELLS[:2], ids=lambda kind: kind.name)
def test_files_as_they_were_released_are_the_same(kind, tmp_path):
    """There the decoder stands at the top of config.json, and pixels in a file of their own, by other names."""
    made_cells(kind, 0, tmp_path)
    expected = weights_of(tmp_path)
    path = tmp_path / "config.json"
    given = json.loads(path.read_text())
    decoder = given.pop("text_config")
    rope = decoder.pop("rope_parameters")
    decoder["rope_theta"] = rope.pop("rope_theta")
    kinds = {"default": "mrope"}
    decoder["rope_scaling"] = {**{key: value for key, value in rope.items() if key != "rope_type"}}
    decoder["rope_scaling"]["type"] = kinds.get(rope["rope_type"], rope["rope_type"])
    given["vision_config"] |= {"in_chans": 3, "spatial_patch_size": PATCH, "model_type": given["model_type"]}
    del given["vision_config"]["rope_parameters"]
    decoder |= {"vision_token_id": FIRST_ID + 4, "model_type": given["model_type"]}
    path.write_text(json.dumps(decoder | given))
    processor = json.loads((tmp_path / PROCESSOR).read_text())["image_processor"]
    size = processor.pop("size")
    processor |= {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    (tmp_path / PROCESSOR).unlink()
    assert expected == weights_of(tmp_path)


REFUSED = {
    "image_token is '<img>'": (PROCESSOR, "", {"image_token": "<img>"}),
    "image_token_id 299": ("config.json", "", {"image_token_id": 299}),
    "vision_config is None": ("config.json", "", {"vision_config": None}),
    "temporal_patch_size": ("config.json", "vision_config", {"temporal_patch_size": 1}),
    "patches of 4 x 4, 3 down": ("config.json", "vision_config", {"spatial_merge_size": 3}),
    "out_hidden_size is 8": ("config.json", "vision_config", {"out_hidden_size": 8}),
    "fullatt_block_indexes": ("config.json", "vision_config", {"fullatt_block_indexes": [3]}),
    "window_size": ("config.json", "vision_config", {"window_size": 3}),
    "rope_type": ("config.json", "vision_config", {"rope_parameters": {"rope_type": "default"}}),
    "mrope_section": ("config.json", "text_config", {"rope_parameters": {"rope_theta": 1e4, "mrope_section": [4, 6]}}),
    "image_processor_type": (PROCESSOR, "image_processor", {"image_processor_type": "CLIPImageProcessor"}),
    "has patch_size 2": (PROCESSOR, "image_processor", {"patch_size": 2}),
    "temporal_patch_size is 3": (PROCESSOR, "image_processor", {"temporal_patch_size": 3}),
    "max_pixels is None": (PROCESSOR, "image_processor", {"size": {"shortest_edge": 64}}),
    "min_pixels is 0": (PROCESSOR, "image_processor", {"min_pixels": 0}),
    "at least 99,999 pixels": (PROCESSOR, "image_processor", {"min_pixels": 99_999}),
    "size is 224": (PROCESSOR, "image_processor", {"size": 224}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_contradicts_itself_or_cannot_be_done_is_refused_by_name(why, tmp_path):
    """Config, processor and tokenizer say together what a picture is in a prompt."""
    file, part, fields = REFUSED[why]
    made_cells(CELLS[SECOND], 0, tmp_path)
    convert(tmp_path, ExportOptions(), filled=False)
    change_within(tmp_path / file, part, **fields)
    with pytest.raises(CheckpointError, match=why):
        convert(tmp_path, ExportOptions(), filled=False)


def test_the_picture_that_is_tried_has_rows_and_columns(tmp_path):
    """The exporter's own is of 2 x 3 places: as many rows as columns would prove less."""
    made_cells(CELLS[0], 0, tmp_path)
    checkpoint = converted(tmp_path)
    _, cut = read_tiles(checkpoint.files[checkpoint.golden.image_path], checkpoint.image)
    assert (2, 3) == cut.grid


def test_a_tokenizer_without_the_token_of_a_picture_is_refused(tmp_path):
    """No text around places could be told from them."""
    made_cells(CELLS[0], 0, tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace(TOKENS[0], "<other>"))
    with pytest.raises(CheckpointError, match="whose id in the tokenizer is None"):
        convert(tmp_path, ExportOptions(), filled=False)


def test_pictures_have_a_bound_that_can_be_chosen(tmp_path):
    """Files of released models allow 12,845,056 pixels. Unless more are chosen, 1,003,520 are made, and it is told."""
    made_cells(CELLS[0], 0, tmp_path)
    for said, chosen, expected, told in (
        (12_845_056, None, 1_003_520, 1),
        (12_845_056, 3_000_000, 3_000_000, 1),
        (5_000, None, 5_000, 0),
        (5_000, 6_000, 6_000, 1),
    ):
        change_within(tmp_path / PROCESSOR, "image_processor", size={"shortest_edge": 64, "longest_edge": said})
        found = convert(tmp_path, ExportOptions(max_pixels=chosen), filled=False)
        assert expected == found.checkpoint.image.tiling.max_pixels
        assert told == sum("--max-pixels chooses" in each for each in found.notes)


def test_the_context_holds_the_largest_picture(tmp_path):
    """Unless one is chosen: 2,048 tokens beside it, and no more than the model takes."""
    made_cells(CELLS[0], 0, tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    for longest, chosen, expected in ((30_000, None, 2048), (700, None, 700), (30_000, 500, 500)):
        change_config(tmp_path, text_config=text | {"max_position_embeddings": longest})
        checkpoint = convert(tmp_path, ExportOptions(max_tokens=chosen), filled=False).checkpoint
        beside = most_places(checkpoint.image) if expected == 2048 else 0
        assert expected + beside == checkpoint.text.max_total_tokens


OF_TEXT = {"hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2, "num_hidden_layers": 28}
OF_TEXT |= {"intermediate_size": 8960, "vocab_size": 151936, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6}
OF_TEXT |= {"hidden_act": "silu", "use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 28}
OF_TEXT |= {"rope_theta": 1000000.0, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
OF_TOKENS = {"bos_token_id": 151643, "eos_token_id": 151645, "vision_start_token_id": 151652, "vision_token_id": 151654}
OF_TOKENS |= {"vision_end_token_id": 151653, "image_token_id": 151655, "video_token_id": 151656}
OF_PICTURES = {"depth": 32, "num_heads": 16, "in_chans": 3, "patch_size": 14, "spatial_merge_size": 2}
OF_PICTURES |= {"spatial_patch_size": 14, "temporal_patch_size": 2}
RELEASED = {
    "qwen2_vl": (
        OF_TEXT | {"tie_word_embeddings": True},
        OF_PICTURES | {"embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 1536},
        {"min_pixels": 3136, "max_pixels": 12845056},
        (2_208_985_600, 1280),
    ),
    "qwen2_5_vl": (
        OF_TEXT
        | {"hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 36, "intermediate_size": 11008}
        | {"max_position_embeddings": 128000, "max_window_layers": 70, "tie_word_embeddings": True},
        OF_PICTURES
        | {"hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 2048}
        | {"window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2},
        {"min_pixels": 3136, "max_pixels": 12845056},
        (3_754_622_976, 1280),
    ),
}


@pytest.mark.parametrize("kind", RELEASED)
def test_released_models_have_the_sizes_that_they_have(kind, tmp_path):
    """As their config.json is: numbers of weights as they are told, but for a kernel's second frame."""
    text, vision, bounds, (num_weights, places) = RELEASED[kind]
    processor = {**bounds, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    processor["image_processor_type"] = "Qwen2VLImageProcessor"
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    config = {"model_type": kind, "architectures": ["x"], **text, **OF_TOKENS, "vision_config": vision}
    hf = HfCheckpoint(tmp_path, fields := Fields(config), Generation(), frozenset())
    made = sizes(hf)
    fields.check_all_read()
    with torch.device("meta"):
        model = QwenVl(made)
    second_frame = 3 * 14**2 * made.sight.d_model
    assert num_weights == sum(each.numel() for each in model.parameters()) + second_frame
    assert 2048 + places == made.max_tokens
    assert (28, (16, 24, 24)) == (made.sight.image_height, made.sections)
    names = {source_of(names_of(made), name) for name in model.state_dict()}
    assert len(names) == len(model.state_dict())


@pytest.mark.parametrize("kind", CELLS[:2], ids=lambda kind: kind.name)
def test_what_is_not_stated_is_the_default_of_the_class(kind, tmp_path):
    """The sizes read of a config.json that states nearly nothing are those read of the class's whole config."""
    config_class = getattr(transformers, kind.architecture).config_class
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "Qwen2VLImageProcessor"}')
    # The two sides have other widths by default.
    stated = {"text_config": {"hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4}}
    whole = json.loads(json.dumps(config_class(**stated).to_dict()))
    model_type = {"model_type": config_class.model_type}

    def read(given):
        return sizes(HfCheckpoint(tmp_path, Fields(given | model_type), Generation(), frozenset()))

    assert read(whole) == read(stated | {"vision_config": {"depth": 32}})


def test_a_model_has_rotations_for_all_places_of_a_picture(tmp_path):
    """A checkpoint of ours whose pictures may be larger is refused, and one that reads no cells."""
    made_cells(CELLS[0], 0, tmp_path)
    checkpoint = converted(tmp_path)
    refused = []
    for change in ("image.tiling.max_pixels *= 40", "image.tiling.Clear(); image.tiling.longest_edge = 16"):
        image = bundle_pb2.ImageSpec()
        image.CopyFrom(checkpoint.image)
        exec(change, {"image": image})
        with pytest.raises(CheckpointError) as error:
            replace(checkpoint, image=image)
        refused.append(str(error.value))
    assert "over model.max_places" in refused[0]
    assert "is for models that read cells" in refused[1]
