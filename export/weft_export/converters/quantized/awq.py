"""AWQ (Lin et al. 2023) as AutoAWQ's kernel "gemm" stores it.

A weight is (level - zero) * scale, with a zero and a scale for each group of inputs and each output.
"""

import torch
from torch import Tensor

from weft_export.checkpoints.weights import DATA_TYPES
from weft_export.converters.fields import Fields
from weft_export.converters.quantized.product import WORD, Parts, StoredProduct, layers_with, unpacked
from weft_export.converters.tensors import NamedTensors
from weft_export.errors import CheckpointError

_HARMLESS = [
    "backend",
    "do_fuse",
    "exllama_config",
    "fuse_max_seq_len",
    "modules_to_fuse",
    "modules_to_not_convert",
    "quant_method",
]
_BITS = 4
_EACH = WORD // _BITS
# In a word lie the outputs 0, 2, 4, 6, 1, 3, 5, 7. So each output is found here:
_FOUND = (0, 4, 1, 5, 2, 6, 3, 7)


def stored_products(said: Fields, stored: NamedTensors) -> list[StoredProduct]:
    """Return the weights of all layers that are stored so.

    Raises:
        CheckpointError: the config asks for another layout, or tensors do not fit each other.
    """
    said.skip(*_HARMLESS)
    for name in ("bits", "w_bit"):
        said.only(name, _BITS)
    said.only("zero_point", True)
    said.only("version", "gemm", "GEMM")
    group = said.integer("group_size", said.integer("q_group_size", 128))
    return [_product(Parts(stored, layer), group) for layer in layers_with(stored, "qweight")]


def _product(parts: Parts, group: int) -> StoredProduct:
    num_inputs, num_words = parts.shape_of("qweight")
    size = num_inputs if group == -1 else group
    if size < 1 or num_inputs % size:
        raise CheckpointError(f"{parts.layer}: {num_inputs} inputs are no groups of {group}")
    num_groups, num_outputs = num_inputs // size, num_words * _EACH
    levels = parts.taken("qweight", ("I32",), (num_inputs, num_words))
    zeros = parts.taken("qzeros", ("I32",), (num_groups, num_words))
    scales = parts.taken("scales", DATA_TYPES, (num_groups, num_outputs))

    def read() -> Tensor:
        of = torch.arange(num_inputs) // size
        away = _in_order(levels()).int() - _in_order(zeros()).int()[of]
        return (away.float() * scales().float()[of]).t().contiguous()

    return StoredProduct(f"{parts.layer}.weight", (num_outputs, num_inputs), tuple(parts.used), read)


def _in_order(words: Tensor) -> Tensor:
    """Return levels [rows, outputs] of words [rows, outputs / 8]."""
    return unpacked(words, _BITS, 1).view(len(words), -1, _EACH)[..., list(_FOUND)].flatten(1)
