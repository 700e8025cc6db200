"""Qwen3-VL of others: sizes, positions between learned ones, and what is refused. Answers: test_cells.py."""

import json

import pytest
import safetensors.torch
import torch
import transformers
from cell_kinds import CELLS, made_cells
from hf_models import converted
from test_splitting import change_within
from tiny_sight import tiny_deep

from weft_export.converters.convert import convert
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.converters.qwen3_vl import sizes
from weft_export.errors import CheckpointError
from weft_export.families.qwen3_vl import DeepSightConfig, DeepTower, Qwen3Vl
from weft_export.layers.positions import interleaved_at
from weft_export.options import ExportOptions
from weft_export.quantization.quantized import quantized
from weft_proto.v1 import bundle_pb2

CONFIG, PROCESSOR = "config.json", "processor_config.json"
DEEP, MIXTURE = CELLS[2:]
# As that of the 2B is.
TEXT = {"hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8}
TEXT |= {"intermediate_size": 6144, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 262144}
TEXT |= {"rope_theta": 5000000, "tie_word_embeddings": True, "model_type": "qwen3_vl_text", "hidden_act": "silu"}
TEXT["rope_scaling"] = {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}
VISION = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "out_hidden_size": 2048}
VISION |= {"deepstack_visual_indexes": [5, 11, 17], "num_position_embeddings": 2304, "patch_size": 16}
VISION |= {"hidden_act": "gelu_pytorch_tanh", "in_channels": 3, "spatial_merge_size": 2, "temporal_patch_size": 2}
PIXELS = {"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "merge_size": 2}
PIXELS |= {"temporal_patch_size": 2, "image_processor_type": "Qwen2VLImageProcessorFast"}


def test_a_released_model_has_the_sizes_that_it_has(tmp_path):
    """As its config.json is: as many weights as theirs, but for a kernel's second frame."""
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PIXELS))
    config = {"model_type": "qwen3_vl", "text_config": TEXT, "vision_config": VISION, "tie_word_embeddings": True}
    made = sizes(HfCheckpoint(tmp_path, fields := Fields(config), Generation(), frozenset()))
    fields.check_all_read()
    with torch.device("meta"):
        ours = Qwen3Vl(made)
        theirs = transformers.Qwen3VLForConditionalGeneration(transformers.Qwen3VLConfig(**config))
    second_frame = 3 * 16**2 * made.sight.d_model
    counts = (sum(each.numel() for each in model.parameters()) for model in (theirs, ours))
    assert next(counts) == next(counts) + second_frame
    assert ((24, 20, 20), (6, 12, 18), 48) == (made.sections, made.sight.deep_layers, made.sight.position_side)
    # 1,003,520 pixels, in cells of 32 x 32.
    assert 2048 + 980 == made.max_tokens


def test_positions_lie_between_the_learned_ones():
    """Of a square as large as the table they are its own; its corners are any picture's; a lone patch has the first."""
    sight = DeepSightConfig(
        channels=3, patch_size=4, cell=2, max_places=64, d_model=8, num_heads=1, d_ff=8, num_layers=1,
        position_side=4, deep_layers=(1,),
    )  # fmt: skip
    tower = DeepTower(sight, 8)

    def laid(rows, columns):
        """Positions of patches as they lie in a picture."""
        placed = tower._placed(rows, columns).reshape(rows, columns, 2, 2, 8).transpose(1, 2)
        return placed.reshape(2 * rows, 2 * columns, 8)

    torch.testing.assert_close(tower.positions, laid(2, 2))
    whole = laid(3, 7)
    for down, across in ((0, 0), (0, -1), (-1, 0), (-1, -1)):
        torch.testing.assert_close(tower.positions[down, across], whole[down, across])
    expected = torch.nn.functional.interpolate(
        tower.positions.permute(2, 0, 1)[None], (6, 14), mode="bilinear", align_corners=True
    )
    torch.testing.assert_close(expected[0].permute(1, 2, 0), whole)
    sight = DeepSightConfig(**{**vars(sight), "cell": 1})
    single = DeepTower(sight, 8)
    assert torch.equal(single.positions[0, 0], single._placed(1, 1)[0])


def test_neighbouring_pairs_turn_by_different_positions():
    """Pair p by position p % 3, as long as its section goes; those behind by the first."""
    tables = (torch.arange(10.0)[:, None].expand(10, 8), torch.zeros(10, 8))
    cos, _ = interleaved_at(tables, torch.tensor([[[1, 2, 3]]]), (4, 2, 2))
    assert [1, 2, 3, 1, 2, 3, 1, 1] == cos[0, 0].tolist()


REFUSED = {
    "deepstack_visual_indexes": (CONFIG, "vision_config", {"deepstack_visual_indexes": [1, 0]}),
    "must be of 3 layers": (CONFIG, "vision_config", {"deepstack_visual_indexes": [3]}),
    "num_position_embeddings": (CONFIG, "vision_config", {"num_position_embeddings": 10}),
    "out_hidden_size": (CONFIG, "vision_config", {"out_hidden_size": 7}),
    "temporal_patch_size": (CONFIG, "vision_config", {"temporal_patch_size": 1}),
    "patches of 5 x 5": (CONFIG, "vision_config", {"patch_size": 5}),
    "text_config": (CONFIG, "", {"text_config": None}),
    "image_token_id": (CONFIG, "", {"image_token_id": 7}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_contradicts_itself_or_cannot_be_done_is_refused_by_name(why, tmp_path):
    """Config, processor and tokenizer say together what a picture is in a prompt."""
    file, part, fields = REFUSED[why]
    made_cells(DEEP, 0, tmp_path)
    convert(tmp_path, ExportOptions(), filled=False)
    change_within(tmp_path / file, part, **fields)
    with pytest.raises(CheckpointError, match=why):
        convert(tmp_path, ExportOptions(), filled=False)


@pytest.mark.parametrize(("name", "value"), [("mrope_interleaved", False), ("mrope_section", [1, 1, 1])])
def test_another_rotation_is_refused(name, value, tmp_path):
    """Neighbouring pairs turn by different positions, and all pairs of a head turn."""
    made_cells(DEEP, 0, tmp_path)
    text = json.loads((tmp_path / CONFIG).read_text())["text_config"]
    change_within(tmp_path / CONFIG, "text_config", rope_parameters=text["rope_parameters"] | {name: value})
    with pytest.raises(CheckpointError, match=name):
        convert(tmp_path, ExportOptions(), filled=False)


def test_experts_are_read_in_either_layout(tmp_path):
    """The released files have matrices as [inputs, outputs]. transformers takes both, by their shapes."""
    made_cells(MIXTURE, 0, tmp_path)
    expected = converted(tmp_path, max_tokens=100).model.state_dict()
    path = tmp_path / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    experts = [name for name in tensors if name.endswith((".gate_up_proj", ".down_proj"))]
    turned = {name: tensors[name].transpose(1, 2).contiguous() for name in experts}
    safetensors.torch.save_file(tensors | turned, path)
    found = converted(tmp_path, max_tokens=100).model.state_dict()
    assert 2 * sum(name.endswith(".router") for name in expected) == len(experts)
    assert all(torch.equal(weight, found[name]) for name, weight in expected.items())


@pytest.mark.parametrize(
    "other", [{"norm_topk_prob": False}, {"decoder_sparse_step": 2}, {"mlp_only_layers": [0]}], ids=str
)
def test_a_mixture_of_another_kind_is_refused(other, tmp_path):
    """The released files say what its class does."""
    made_cells(MIXTURE, 0, tmp_path)
    change_within(tmp_path / CONFIG, "text_config", norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
    convert(tmp_path, ExportOptions(), filled=False)
    change_within(tmp_path / CONFIG, "text_config", **other)
    with pytest.raises(CheckpointError, match=next(iter(other))):
        convert(tmp_path, ExportOptions(), filled=False)


def test_what_a_picture_adds_to_a_layer_counts(tmp_path, monkeypatch):
    """Without it, the answer is another one."""
    made_cells(DEEP, 0, tmp_path)
    model = converted(tmp_path, max_tokens=100).model
    cells = torch.randn(1, 2, 2, 3, *[model.config.sight.image_height] * 2)
    ids = torch.tensor([[5, *[model.config.vocab_size] * 4, 6]])
    with torch.inference_mode():
        whole = model.decode(ids, cells)
        monkeypatch.setattr(model, "_added", lambda *_: (None,) * len(model.layers))
        assert (whole - model.decode(ids, cells)).abs().max() > 1e-2


def test_what_is_added_is_there_while_rounding_is_measured():
    """Words are watched then, by a module without weights of its own."""
    rounded = quantized(tiny_deep(), bundle_pb2.PRECISION_INT8, [])
    assert rounded.rounding is not None
