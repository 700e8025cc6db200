"""compressed-tensors, as llmcompressor and vLLM have it: integers of 4 or 8 bits, packed or not, and floats of 8."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from weft_export.checkpoints.weights import DATA_TYPES
from weft_export.converters.fields import Fields
from weft_export.converters.quantized.product import WORD, Parts, StoredProduct, layers_with, unpacked
from weft_export.converters.tensors import NamedTensors
from weft_export.errors import CheckpointError

_HARMLESS = ("global_compression_ratio", "ignore", "quant_method", "version")
# How scales were found. What says how weights are laid out is read.
_OF_WEIGHTS = ("actorder", "observer", "observer_kwargs", "scale_dtype", "zp_dtype", "strategy", "group_size")
_PACKED = "pack-quantized"
_PLAIN = ("int-quantized", "float-quantized", "naive-quantized")
# What a layer has of inputs and outputs that are rounded while a model runs.
_BESIDE = ("input_scale", "input_zero_point", "output_scale", "output_zero_point")
_NUMBER_TYPES = {("int", 8): "I8", ("float", 8): "F8_E4M3"}


def stored_products(said: Fields, stored: NamedTensors) -> list[StoredProduct]:
    """Return the weights of all layers that are stored so.

    Raises:
        CheckpointError: the config asks for another layout, or tensors do not fit each other.
    """
    said.skip(*_HARMLESS)
    said.only("kv_cache_scheme", None)
    said.only("quantization_status", "compressed", "frozen")
    for name in ("sparsity_config", "transform_config"):
        if any(said.part(name).raw(key) not in (None, "dense", {}, []) for key in ("format", "config_groups")):
            raise said.wrong(name, "is not read")
        said.part(name).skip("global_sparsity", "ignore", "registry_requires_subclass", "sparsity_structure", "targets")
    form = said.word("format", _PACKED)
    if form not in (_PACKED, *_PLAIN):
        raise said.wrong("format", f"is not read; {', '.join((_PACKED, *_PLAIN))} are")
    groups = said.part("config_groups")
    names = list(said.raw("config_groups") or {})
    if len(names) != 1:
        raise said.wrong("config_groups", "must be one group: layers with rules of their own are not read")
    scheme = groups.part(names[0])
    scheme.only("format", form)
    # Which layers are meant, their tensors say.
    scheme.skip("targets")
    _note_unrounded(said, scheme)
    weights = scheme.part("weights")
    weights.skip(*_OF_WEIGHTS)
    weights.only("dynamic", False)
    weights.only("block_structure", None)
    kind = (weights.word("type", "int"), weights.whole("num_bits"))
    even = weights.flag("symmetric", default=True)
    strategy = weights.raw("strategy")
    if strategy not in (None, "tensor", "channel", "group"):
        raise weights.wrong("strategy", "is not read; tensor, channel and group are")
    if form == _PACKED and kind not in {("int", 4), ("int", 8), ("int", 2)}:
        raise weights.wrong("num_bits", f"is not read for {form}; integers of 2, 4 and 8 bits are")
    if form != _PACKED and kind not in _NUMBER_TYPES:
        raise weights.wrong("num_bits", f"is not read for {form}; 8 bits are")
    part = "weight_packed" if form == _PACKED else "weight"
    layers = layers_with(stored, "weight_packed") if form == _PACKED else layers_with(stored, "weight_scale")
    return [_product(Parts(stored, layer), part, kind, even=even) for layer in layers]


def _note_unrounded(said: Fields, scheme: Fields) -> None:
    """Note what is rounded there while the model runs, and not here."""
    rounded = [name for name in ("input_activations", "output_activations") if scheme.raw(name) is not None]
    if rounded:
        said.notes.append(f"{' and '.join(rounded)} of its quantization_config are not followed: only weights are")


def _product(parts: Parts, part: str, kind: tuple[str, int], *, even: bool) -> StoredProduct:
    rows, length = parts.shape_of(part)
    bits = kind[1]
    if part == "weight":
        levels = parts.taken(part, (_NUMBER_TYPES[kind],), (rows, length))
        width = length
    else:
        levels, width = _packed(parts, rows, length, bits)
    num_groups = _num_groups(parts, rows, width)
    scales = parts.taken("weight_scale", DATA_TYPES, parts.any_shape("weight_scale"))
    zeros = None
    if not even:
        zeros = _zeros(parts, part, rows, num_groups, bits)
    groups = parts.taken("weight_g_idx", ("I32", "I64"), (width,)) if "weight_g_idx" in parts else None
    for name in _BESIDE:
        parts.left(name)

    def read() -> Tensor:
        of = torch.arange(width) * num_groups // width if groups is None else groups().long()
        if not bool(((of >= 0) & (of < num_groups)).all()):
            raise CheckpointError(f"{parts.layer}.weight_g_idx names a group that is none of {num_groups}")
        scale = scales().float().reshape(-1, num_groups).expand(rows, num_groups)
        level = levels().float()
        if zeros is not None:
            level = level - zeros().float().reshape(-1, num_groups).expand(rows, num_groups)[:, of]
        return level * scale[:, of]

    is_even = even and kind == ("int", 4) and width // num_groups % 32 == 0 and parts.data_type("weight_scale") == "F16"
    return StoredProduct(f"{parts.layer}.weight", (rows, width), tuple(parts.used), read, is_even)


def _packed(parts: Parts, rows: int, num_words: int, bits: int) -> tuple[Callable[[], Tensor], int]:
    """Return what reads signed levels, and how many a row has: a small tensor says it."""
    words = parts.taken("weight_packed", ("I32",), (rows, num_words))
    shape = parts.taken("weight_shape", ("I64", "I32"), (2,))().tolist()
    width = shape[1]
    if shape[0] != rows or width < 1 or math.ceil(width * bits / WORD) != num_words:
        raise CheckpointError(f"{parts.layer}.weight_shape is {shape}, and {num_words} words a row are packed")
    return lambda: unpacked(words(), bits, 1)[:, :width].int() - (1 << bits - 1), width


def _num_groups(parts: Parts, rows: int, width: int) -> int:
    """Return how many groups a row has, by the scales: one, or one for all rows, or several of equal length."""
    shape = parts.any_shape("weight_scale")
    known = shape in {(), (1,), (rows,), (1, 1)} or (len(shape) == 2 and shape[0] == rows)
    num_groups = shape[1] if len(shape) == 2 else 1
    if not known or not num_groups or width % num_groups:
        raise CheckpointError(f"the tensor {parts.layer}.weight_scale is {list(shape)}; the weight is {[rows, width]}")
    return num_groups


def _zeros(parts: Parts, part: str, rows: int, num_groups: int, bits: int) -> Callable[[], Tensor]:
    if part == "weight":
        return parts.taken("weight_zero_point", ("I8",), parts.any_shape("weight_scale"))
    words = parts.taken("weight_zero_point", ("I32",), (math.ceil(rows * bits / WORD), num_groups))
    return lambda: unpacked(words(), bits, 0)[:rows].int() - (1 << bits - 1)
