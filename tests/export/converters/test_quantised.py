"""Directories whose weights are quantised already: GPTQ, AWQ, MXFP4, compressed-tensors become what they stand for.

The packing here is written down by the formats' own descriptions, apart from ours. compressed-tensors has the library.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme
from decoder_kinds import DECODERS
from hf_models import LOGITS, Kind, change_config, converted, furthest, made, token_rows

from weft_export.choices import PRECISIONS
from weft_export.converters.convert import convert
from weft_export.converters.fields import Fields
from weft_export.converters.quantized.reading import unquantised
from weft_export.converters.tensors import StoredTensors
from weft_export.converters.text.json_file import read_object
from weft_export.errors import CheckpointError
from weft_export.layers.block_linear import FOUR_BITS, BlockLinear
from weft_export.options import ExportOptions
from weft_export.quantization import in_blocks

LLAMA = next(kind for kind in DECODERS if kind.name == "llama")
EXPERTS = "model.layers.0.mlp.experts"
GROUP = 32
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


def directory_of(path):
    """Write a random Llama whose widths are groups of inputs; return the model and its linear layers by name."""
    kind = type(LLAMA)(LLAMA.name, LLAMA.architecture, lambda rng: {**LLAMA.draw(rng), **SIZES})
    model = made(kind, 0, path)
    layers = {name: each for name, each in model.named_modules() if isinstance(each, torch.nn.Linear)}
    layers.pop("lm_head", None)
    return model, layers


def write(path, model, layers, quantise, config):
    """Write a directory with each layer's weight as quantise has it, and give the model the weights that are meant."""
    tensors = {name: each.contiguous() for name, each in model.state_dict().items() if "lm_head" not in name}
    if not model.config.tie_word_embeddings:
        tensors["lm_head.weight"] = model.lm_head.weight
    for seed, (name, layer) in enumerate(layers.items()):
        parts, wide = quantise(layer.weight.detach(), seed)
        del tensors[f"{name}.weight"]
        tensors |= {f"{name}.{part}": each.contiguous() for part, each in parts.items()}
        layer.weight.data = wide.float()
    safetensors.torch.save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    change_config(path, quantization_config=config)


def check(path, model):
    """Hold our logits to those of the model with the weights that the files stand for."""
    ids = torch.tensor(token_rows(300, (60,)))
    with torch.inference_mode():
        assert LOGITS >= furthest(converted(path, max_tokens=96).model.decode(ids)[0], model(ids).logits[0])


def packed(levels: np.ndarray, bits: int, order=None) -> torch.Tensor:
    """Pack unsigned levels [rows, columns] into int32, along the columns; order says which column lies where."""
    each = 32 // bits
    rows = np.zeros((levels.shape[0], levels.shape[1] // each), dtype=np.uint32)
    for column in range(rows.shape[1]):
        for place in range(each):
            level = levels[:, column * each + (place if order is None else order[place])].astype(np.uint32)
            rows[:, column] |= level << np.uint32(bits * place)
    return torch.from_numpy(rows.view(np.int32))


def gptq(bits, *, less=1, symmetric=False, scattered=False, size=GROUP, with_groups=True):
    """Return what quantises a weight as GPTQ stores it."""

    def quantise(weight, seed):
        generator = np.random.default_rng(seed)
        outputs, inputs = weight.shape
        step = inputs if size == -1 else size
        groups = np.arange(inputs) // step
        if scattered:
            generator.shuffle(groups)
        levels = generator.integers(0, 1 << bits, (inputs, outputs))
        zeros = generator.integers(1, 1 << bits, (inputs // step, outputs))
        if symmetric:
            zeros[:] = 1 << bits - 1
        scales = torch.rand(inputs // step, outputs, generator=torch.Generator().manual_seed(seed)).half() / 64
        wide = (levels - zeros[groups]) * scales.double().numpy()[groups]
        parts = {
            "qweight": packed(levels.T, bits).t(),
            "qzeros": packed(zeros - less, bits),
            "scales": scales,
            "g_idx": torch.from_numpy(groups).int(),
        }
        if not with_groups:
            del parts["g_idx"]
        return parts, torch.from_numpy(wide.T.copy())

    return quantise


def awq(weight, seed, size=GROUP):
    """Quantise a weight as AutoAWQ stores it. A size of -1 is one group."""
    generator = np.random.default_rng(seed)
    outputs, inputs = weight.shape
    step = inputs if size == -1 else size
    levels = generator.integers(0, 16, (inputs, outputs))
    zeros = generator.integers(0, 16, (inputs // step, outputs))
    scales = torch.rand(inputs // step, outputs, generator=torch.Generator().manual_seed(seed)).half() / 64
    groups = np.arange(inputs) // step
    wide = (levels - zeros[groups]) * scales.double().numpy()[groups]
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    parts = {"qweight": packed(levels, 4, order), "qzeros": packed(zeros, 4, order), "scales": scales}
    return parts, torch.from_numpy(wide.T.copy())


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False, "damp_percent": 0.1}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}


@pytest.mark.parametrize(
    ("config", "quantise"),
    [
        (GPTQ, gptq(4)),
        (GPTQ | {"checkpoint_format": "gptq_v2"}, gptq(4, less=0)),
        (GPTQ | {"format": "gptq_v2", "method": "gptq"}, gptq(4, less=0)),
        (GPTQ | {"desc_act": True}, gptq(4, scattered=True)),
        (GPTQ | {"bits": 8}, gptq(8)),
        (GPTQ | {"bits": 2, "group_size": -1}, gptq(2, size=-1)),
        (GPTQ, gptq(4, with_groups=False)),
        (AWQ, awq),
        (AWQ | {"group_size": -1}, partial(awq, size=-1)),
    ],
    ids=["v1", "v2", "v2 by its new name", "desc_act", "8 bits", "2 bits, one group", "no g_idx", "awq", "one of awq"],
)
def test_a_quantised_directory_answers_with_the_weights_that_it_stands_for(config, quantise, tmp_path):
    """Logits within 1e-4 of the model whose weights are (level - zero) * scale, as the format says."""
    model, layers = directory_of(tmp_path)
    write(tmp_path, model, layers, quantise, config)

    check(tmp_path, model)


@pytest.mark.parametrize("form", ["auto_gptq", "auto_awq", "auto_round"])
def test_what_autoround_saved_is_its_own_model(form):
    """GPTQ's format, AWQ's and its own, as the library writes them: each weight rounds to that of its own model."""
    folder = Path(__file__).parent / "auto_round" / form
    theirs = safetensors.torch.load_file(folder / "rounded.safetensors")
    config = read_object(folder / "config.json")
    ours = unquantised(config, Fields(config), StoredTensors(folder))

    assert 14 == len(theirs)
    assert [] == [name for name, weight in theirs.items() if not torch.equal(ours.reader(name)().bfloat16(), weight)]


SHAPES = {"gate_up_proj": (4, 2 * 96, 64 // 32), "down_proj": (4, 64, 96 // 32)}
"""Experts, outputs and blocks of inputs."""


def released(path):
    """Write a random gpt-oss as it is released: two bytes of experts' weights in 16, and exponents of their scales."""
    gpt_oss = next(kind for kind in DECODERS if kind.name == "gpt_oss")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_local_experts": 4, "num_hidden_layers": 1}
    made(
        Kind("gpt_oss", gpt_oss.architecture, lambda rng: {**gpt_oss.draw(rng), **sizes, "layer_types": None}), 0, path
    )
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    generator = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        del tensors[f"{EXPERTS}.{name}"]
        tensors[f"{EXPERTS}.{name}_blocks"] = torch.from_numpy(generator.integers(0, 256, (*shape, 16), np.uint8))
        tensors[f"{EXPERTS}.{name}_scales"] = torch.from_numpy(generator.integers(118, 125, shape, np.uint8))
    safetensors.torch.save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    change_config(path, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
    return tensors


def test_a_gpt_oss_as_released_answers_as_transformers(tmp_path):
    """MXFP4, which transformers widens where there is no device for it."""
    released(tmp_path)
    check(tmp_path, transformers.GptOssForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval())


@pytest.mark.parametrize(
    ("part", "tensor", "complaint"),
    [
        ("gate_up_proj_blocks", torch.zeros(4, 192, 2, 8, dtype=torch.uint8), "no blocks of 16 bytes"),
        ("gate_up_proj_blocks", torch.zeros(4, 192, 2, 16), "gate_up_proj_blocks is F32"),
        ("gate_up_proj_blocks", torch.zeros(4, 192, 0, 16, dtype=torch.uint8), "no blocks of 16 bytes"),
        ("gate_up_proj_blocks", torch.zeros(3, 192, 2, 16, dtype=torch.uint8), "gate_up_proj_scales is U8"),
        ("down_proj_scales", torch.zeros(4, 64, 2, dtype=torch.uint8), "down_proj_scales is U8"),
        ("down_proj_scales", torch.full((4, 64, 3), 255, dtype=torch.uint8), "has a scale that is no number"),
        ("down_proj_scales", None, "down_proj_scales is missing"),
        ("down_proj_blocks", None, "down_proj, model.*down_proj"),
    ],
)
def test_blocks_that_do_not_fit_their_scales_are_refused(part, tensor, complaint, tmp_path):
    """A part that is missing, of another type or size, or with a scale of 255, by which the format means no number."""
    tensors = released(tmp_path)
    del tensors[f"{EXPERTS}.{part}"]
    if tensor is not None:
        tensors[f"{EXPERTS}.{part}"] = tensor
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(CheckpointError, match=complaint):
        converted(tmp_path)


def scheme_of(num_bits, strategy, kind="int", *, symmetric=True, size=None):
    """Return a scheme of compressed-tensors."""
    weights = {"num_bits": num_bits, "type": kind, "symmetric": symmetric, "strategy": strategy, "group_size": size}
    return {"targets": ["Linear"], "weights": {**weights, "dynamic": False}}


def compressed(form, scheme, *, halves=None):
    """Return what quantises a weight with the library of compressed-tensors.

    halves: whether scales are stored as float16, or as float32 that float16 does not hold. None: float32 that it holds.
    """
    library = QuantizationScheme(**scheme)
    compressor = BaseCompressor.get_value_from_registry(form)

    def quantise(weight, seed):
        generator = torch.Generator().manual_seed(seed)
        rows, width = weight.shape
        num_groups = width // (scheme["weights"]["group_size"] or width)
        shape = {"tensor": (1,), "channel": (rows, 1), "group": (rows, num_groups)}[scheme["weights"]["strategy"]]
        scale = (torch.rand(shape, generator=generator) + 0.5) / (100 if scheme["weights"]["num_bits"] == 4 else 1000)
        state = {"weight": weight, "weight_scale": scale if halves is False else scale.half().float()}
        if not scheme["weights"]["symmetric"]:
            state["weight_zero_point"] = torch.randint(-6, 6, shape, generator=generator, dtype=torch.int8)
        parts = compressor.compress(state, library)
        if halves:
            parts["weight_scale"] = parts["weight_scale"].half()
        return parts, compressor.decompress(parts, library)["weight"]

    return quantise


SCHEMES = [
    ("pack-quantized", scheme_of(4, "group", size=GROUP)),
    ("pack-quantized", scheme_of(4, "group", size=GROUP, symmetric=False)),
    ("pack-quantized", scheme_of(4, "channel")),
    ("pack-quantized", scheme_of(8, "channel", symmetric=False)),
    ("int-quantized", scheme_of(8, "channel")),
    ("int-quantized", scheme_of(8, "tensor", symmetric=False)),
    ("naive-quantized", scheme_of(8, "group", size=GROUP)),
    ("float-quantized", scheme_of(8, "tensor", "float")),
    ("naive-quantized", scheme_of(8, "channel", "float")),
]


@pytest.mark.parametrize(("form", "scheme"), SCHEMES)
def test_compressed_tensors_answer_with_the_weights_that_their_library_makes(form, scheme, tmp_path):
    """Logits within 1e-4 of the model whose weights the library of the format compressed and then decompressed."""
    model, layers = directory_of(tmp_path)
    config = {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": scheme}}
    write(tmp_path, model, layers, compressed(form, scheme), {**config, "quantization_status": "compressed"})

    check(tmp_path, model)


def packed_as(bits, size, **more):
    """Return a config of compressed-tensors for packed integers, and what quantises a weight so."""
    scheme = scheme_of(bits, "group", size=size)
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": scheme}}
    return config | {"quantization_status": "compressed"}, compressed("pack-quantized", scheme, **more)


def assert_kept(checkpoint):
    """Of a whole model at int4, whatever its texts are: each product of 4 bits is what it was."""
    rounded = in_blocks.rounded_in_blocks(checkpoint, PRECISIONS["int4"]).model
    kept = {
        path: torch.equal(product.weight, rounded.get_submodule(path).wide)
        for path, product in in_blocks.products_of(checkpoint.model).items()
        if isinstance(product, torch.nn.Linear) and rounded.get_submodule(path).blocks.bits == FOUR_BITS.bits
    }
    assert len(kept) > 3
    assert all(kept.values()), kept


SYMMETRIC = GPTQ | {"sym": True}


@pytest.mark.parametrize(
    ("config", "quantise", "stay"),
    [
        (SYMMETRIC, gptq(4, symmetric=True), True),
        (SYMMETRIC | {"desc_act": True}, gptq(4, symmetric=True, scattered=True), False),
        (SYMMETRIC | {"bits": 8}, gptq(8, symmetric=True), False),
        (SYMMETRIC | {"group_size": 16}, gptq(4, symmetric=True, size=16), False),
        (GPTQ, gptq(4), False),
        (*packed_as(4, GROUP, halves=True), True),
        (*packed_as(4, GROUP, halves=False), False),
        (*packed_as(4, 16, halves=True), False),
        (*packed_as(8, GROUP, halves=True), False),
    ],
    ids=["gptq", "scattered", "8 bits", "groups of 16", "zeros", "packed", "float32", "packed by 16", "packed 8 bits"],
)
def test_weights_are_said_to_keep_their_4_bits_at_int4_where_they_do(config, quantise, stay, tmp_path):
    """Levels on both sides of 0 in groups of 32, 64, 128 inputs are int4's blocks of 32, with the same scale."""
    model, layers = directory_of(tmp_path)
    write(tmp_path, model, layers, quantise, config)
    result = convert(tmp_path, ExportOptions(max_tokens=96))
    layer = result.checkpoint.model.layers[0]
    products = (layer.attention.qkv, layer.attention.output, layer.feed_forward.gate_proj, layer.feed_forward.down_proj)

    assert stay == any("at --precision int4 they keep their 4 bits" in note for note in result.notes)
    assert stay == all(torch.equal(each.weight, BlockLinear(each.weight, None, FOUR_BITS).wide) for each in products)
    if stay:
        assert_kept(result.checkpoint)


def test_what_is_rounded_while_a_model_runs_is_noted(tmp_path):
    """Weights are what the files say. That their owner rounds the inputs of products too is said at the export."""
    model, layers = directory_of(tmp_path)
    scheme = scheme_of(8, "channel")
    rounding = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    groups = {"group_0": {**scheme, "input_activations": rounding}}
    config = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": groups}
    write(tmp_path, model, layers, compressed("int-quantized", scheme), config)
    notes = convert(tmp_path, ExportOptions()).notes

    assert any("input_activations of its quantization_config are not followed" in each for each in notes)


AUTO_ROUND = GPTQ | {
    "quant_method": "auto-round",
    "autoround_version": "0.16.1",
    "packing_format": "auto_round:auto_gptq",
}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": SCHEMES[0][1]},
}


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"quant_method": "fp8"}, "quant_method is 'fp8': it is not read: of weights that are quantised already, gptq"),
        ({"quant_method": "exl2"}, "'exl2'"),
        ({"quant_method": "mxfp4"}, "the files have none such"),
        ({"quant_method": "hqq"}, "'hqq'"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "'bitsandbytes'"),
        (GPTQ | {"bits": 3}, "bits is 3: it is not read; 2, 4 and 8 are"),
        (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format is 'marlin'"),
        (GPTQ | {"dynamic": {"-:lm_head": {}}}, "dynamic"),
        (GPTQ | {"new_rule": 1}, "new_rule"),
        (GPTQ | {"group_size": 0}, "groups of 0 inputs"),
        (GPTQ | {"group_size": 64}, "qzeros is I32"),
        (AWQ | {"version": "gemv"}, "version is 'gemv'"),
        (AWQ | {"zero_point": False}, "zero_point is False"),
        (COMPRESSED | {"format": "nvfp4-pack-quantized"}, "format is 'nvfp4-pack-quantized': it is not read"),
        (COMPRESSED | {"format": "marlin-24"}, "format is 'marlin-24'"),
        (COMPRESSED | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config"),
        (COMPRESSED | {"transform_config": {"config_groups": {"R1": {}}}}, "transform_config"),
        (COMPRESSED | {"config_groups": {"a": SCHEMES[0][1], "b": SCHEMES[1][1]}}, "config_groups"),
        (COMPRESSED | {"config_groups": {"a": scheme_of(4, "block")}}, "strategy is 'block'"),
        (COMPRESSED | {"config_groups": {"a": scheme_of(6, "group", size=GROUP)}}, "num_bits is 6"),
        (COMPRESSED | {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme"),
        (COMPRESSED, "the files have none such"),
        (AUTO_ROUND | {"packing_format": "auto_round:exllamav2"}, "packing_format is 'auto_round:exllamav2'"),
        (AUTO_ROUND | {"data_type": "nv_fp"}, "data_type is 'nv_fp'"),
        (AUTO_ROUND | {"extra_config": {"model.layers.0": {"bits": 8}}}, "extra_config"),
        (GPTQ | {"provider": "auto-round"}, "provider"),
    ],
)
def test_a_layout_that_is_not_read_is_refused_by_its_name(config, complaint, tmp_path):
    """What says how levels lie, and is not known here, is never left out silently."""
    model, layers = directory_of(tmp_path)
    write(tmp_path, model, layers, gptq(4), config)

    with pytest.raises(CheckpointError, match=complaint):
        converted(tmp_path)


@pytest.mark.parametrize(
    ("part", "tensor", "complaint"),
    [
        ("qweight", torch.zeros(8, 3, dtype=torch.int32), "must be"),
        ("qzeros", torch.zeros(2, 8), "qzeros is F32"),
        ("scales", torch.zeros(1, 1), "scales is F32"),
        ("g_idx", torch.full((64,), 2, dtype=torch.int32), "g_idx names a group that is none of 2"),
        ("g_idx", torch.full((64,), -1, dtype=torch.int32), "g_idx names a group that is none of 2"),
        ("qzeros", torch.full((2, 8), -1, dtype=torch.int32), "has a zero that its format cannot hold"),
        ("scales", None, "scales is missing"),
    ],
)
def test_parts_that_do_not_fit_each_other_are_refused(part, tensor, complaint, tmp_path):
    """A part that is missing, of another type or size, or that names a group that is not there."""
    model, layers = directory_of(tmp_path)
    write(tmp_path, model, layers, gptq(4), GPTQ)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    name = f"model.layers.0.self_attn.q_proj.{part}"
    if tensor is None:
        del tensors[name]
    else:
        tensors[name] = tensor
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")

    with pytest.raises(CheckpointError, match=complaint):
        converted(tmp_path)


def test_gpt2s_matrices_are_not_turned_silently(tmp_path):
    """GPT-2 stores its matrices as [inputs, outputs], so a square one that was quantised would be read turned."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "quantization_config": GPTQ}))
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")

    with pytest.raises(CheckpointError, match="GPT-2's matrices"):
        converted(tmp_path)
