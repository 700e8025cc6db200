"""MXFP4 as gpt-oss is released: numbers of 4 bits, 32 of which share a power of 2 ("OCP Microscaling Formats", 2023).

All experts of a layer lie in one tensor of blocks, and in one of the exponents of their scales.
"""

import torch
from torch import Tensor

from weft_export.converters.fields import Fields
from weft_export.converters.quantized.product import Parts, StoredProduct, layers_with
from weft_export.converters.tensors import NamedTensors
from weft_export.errors import CheckpointError

_BLOCK = 32
_BYTES = _BLOCK // 2
_PRODUCTS = ("gate_up_proj", "down_proj")
# Of 4 bits: a sign, two of an exponent and one of a fraction.
_NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_EXPONENT_OF_ONE, _NO_NUMBER = 127, 255


def stored_products(said: Fields, stored: NamedTensors) -> list[StoredProduct]:
    """Return the weights of all experts.

    Raises:
        CheckpointError: tensors do not fit each other.
    """
    # Which tensors are stored so, their names say.
    said.skip("quant_method", "modules_to_not_convert", "dequantize")
    return [
        _product(Parts(stored, layer), name) for name in _PRODUCTS for layer in layers_with(stored, f"{name}_blocks")
    ]


def _product(parts: Parts, name: str) -> StoredProduct:
    """Return one [experts, inputs, outputs] of blocks [experts, outputs, inputs / 32, 16]."""
    shape = parts.any_shape(f"{name}_blocks")
    if len(shape) != 4 or shape[3] != _BYTES or not all(shape):
        raise CheckpointError(f"the tensor {parts.layer}.{name}_blocks is {list(shape)}, no blocks of {_BYTES} bytes")
    blocks, exponents = (
        parts.taken(f"{name}_blocks", ("U8",), shape),
        parts.taken(f"{name}_scales", ("U8",), shape[:3]),
    )

    def read() -> Tensor:
        pairs, exponent = blocks(), exponents()
        if bool((exponent == _NO_NUMBER).any()):
            raise CheckpointError(f"the tensor {parts.layer}.{name}_scales has a scale that is no number")
        numbers = torch.tensor((*_NUMBERS, *(-number for number in _NUMBERS)))
        # The lower half of a byte is the first of its two.
        levels = torch.stack((numbers[(pairs & 15).int()], numbers[(pairs >> 4).int()]), dim=-1).flatten(-2)
        scaled = torch.ldexp(levels, exponent.int()[..., None] - _EXPONENT_OF_ONE)
        return scaled.flatten(-2).transpose(1, 2)

    experts, outputs, groups, _ = shape
    return StoredProduct(f"{parts.layer}.{name}", (experts, groups * _BLOCK, outputs), tuple(parts.used), read)
