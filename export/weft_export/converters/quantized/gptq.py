"""GPTQ (Frantar et al. 2022) as AutoGPTQ and GPTQModel store it.

A weight is (level - zero) * scale. Each input belongs to a group, which has a zero and a scale for each output.
"""

import math

import torch
from torch import Tensor

from weft_export.checkpoints.weights import DATA_TYPES
from weft_export.converters.fields import Fields
from weft_export.converters.quantized.product import WORD, Parts, StoredProduct, layers_with, unpacked
from weft_export.converters.tensors import NamedTensors
from weft_export.errors import CheckpointError

# How the weights were found, or what a kernel does with them.
_HARMLESS = [
    "act_group_aware",
    "backend",
    "batch_size",
    "block_name_to_quantize",
    "cache_block_outputs",
    "damp_auto_increment",
    "damp_percent",
    "dataset",
    "disable_exllama",
    "exllama_config",
    "is_marlin_format",
    "max_input_length",
    "meta",
    "model_file_base_name",
    "model_name_or_path",
    "model_seqlen",
    "module_name_preceding_first_block",
    "modules_in_block_to_quantize",
    "mse",
    "pad_token_id",
    "parallel_packing",
    "quant_method",
    "static_groups",
    "tokenizer",
    "true_sequential",
    "use_cuda_fp16",
    "use_exllama",
    "quantizer",
    "version",
]
_FORMATS = {"gptq": "gptq", "gptq_v2": "gptq_v2"}


def stored_products(said: Fields, stored: NamedTensors) -> list[StoredProduct]:
    """Return the weights of all layers that are stored so.

    Raises:
        CheckpointError: the config asks for another layout, or tensors do not fit each other.
    """
    said.skip(*_HARMLESS)
    bits = said.whole("bits")
    if bits not in (2, 4, 8):
        raise said.wrong("bits", "is not read; 2, 4 and 8 are")
    said.only("pack_dtype", "int32")
    said.only("lm_head", False)
    said.only("method", "gptq")
    # A rule of its own for some layers.
    said.only("dynamic", {}, False)
    group = said.integer("group_size", -1)
    named = said.among("format", _FORMATS, "gptq")
    # The first layout stores each zero less 1.
    less = int(said.among("checkpoint_format", _FORMATS, named) == "gptq")
    # Where both say so, each block of 32 inputs has one scale, and levels on both sides of 0.
    symmetric, scattered = said.flag("sym", default=True), said.flag("desc_act", default=False)
    even = symmetric and not scattered and bits == 4
    return [_product(Parts(stored, layer), bits, group, less, even=even) for layer in layers_with(stored, "qweight")]


def _product(parts: Parts, bits: int, group: int, less: int, *, even: bool) -> StoredProduct:
    each = WORD // bits
    num_words, num_outputs = parts.shape_of("qweight")
    num_inputs = num_words * each
    size = num_inputs if group == -1 else group
    if size < 1:
        raise CheckpointError(f"{parts.layer}: groups of {group} inputs are none")
    num_groups = math.ceil(num_inputs / size)
    levels = parts.taken("qweight", ("I32",), (num_words, num_outputs))
    zeros = parts.taken("qzeros", ("I32",), (num_groups, math.ceil(num_outputs / each)))
    scales = parts.taken("scales", DATA_TYPES, (num_groups, num_outputs))
    groups = parts.taken("g_idx", ("I32", "I64"), (num_inputs,)) if "g_idx" in parts else None

    def read() -> Tensor:
        zero = unpacked(zeros(), bits, 1)[:, :num_outputs].int()
        if less and bool((zero == (1 << bits) - 1).any()):
            raise CheckpointError(
                f"{parts.layer}.qzeros has a zero that its format cannot hold, and readers of it differ: GPTQModel"
                " can write gptq_v2"
            )
        of = _groups(parts.layer, groups() if groups else torch.arange(num_inputs) // size, num_groups)
        level = unpacked(levels(), bits, 0).int()
        return ((level - (zero + less)[of]).float() * scales().float()[of]).t().contiguous()

    even = even and size % 32 == 0
    return StoredProduct(f"{parts.layer}.weight", (num_outputs, num_inputs), tuple(parts.used), read, even)


def _groups(layer: str, groups: Tensor, num_groups: int) -> Tensor:
    if not bool(((groups >= 0) & (groups < num_groups)).all()):
        raise CheckpointError(f"{layer}.g_idx names a group that is none of {num_groups}")
    return groups.long()
