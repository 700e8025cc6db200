"""Keys and values in 8-bit integers: what a cached attention keeps is a quarter of its size in float32.

Each channel of a head has one scale, fixed when the model is exported. So the levels of a token follow from that token
alone: they are the same in any batch, and wherever a prompt is cut. The scales come from what the model does with
requests (`quantization/calibration.py`). What exceeds them is clipped.

ONNX Runtime's GroupQueryAttention rounds keys after their rotation. It attends to the levels, this run's own tokens
included. The torch branch does the same arithmetic.
"""

import torch
from torch import Tensor, nn

from weft_export.layers.quantized_linear import LEVELS

_LEAST_LEVEL = -128  # unlike in products: the operator has it
# No channel's range is taken to be less than this share of the largest one. What is smaller counts for as little as the
# largest channel's own rounding.
_LEAST_SHARE = 1 / 128


class CacheRounding(nn.Module):
    """The scales of one attention, of its keys and of its values: float32 [1, kv_heads, 1, head_dim] each."""

    key_scale: Tensor
    value_scale: Tensor

    def __init__(self, key_range: Tensor, value_range: Tensor) -> None:
        """Take the magnitudes, float [kv_heads, head_dim], that are to have the outermost level."""
        super().__init__()
        self.register_buffer("key_scale", _scale_of(key_range))
        self.register_buffer("value_scale", _scale_of(value_range))

    def levels(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Round keys and values [batch, kv_heads, seq, head_dim] to int8."""
        return _levels(keys, self.key_scale), _levels(values, self.value_scale)

    def widened(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return what levels stand for, float32 of the same shape; float64 in a model that computes so."""
        return keys.float() * _wide(self.key_scale), values.float() * _wide(self.value_scale)

    def forward(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values as they are after rounding, of the same shape and type."""
        wide_keys, wide_values = self.widened(*self.levels(keys, values))
        return wide_keys.to(keys.dtype), wide_values.to(values.dtype)


def _scale_of(magnitudes: Tensor) -> Tensor:
    largest = magnitudes.max()
    least = largest * _LEAST_SHARE if largest > 0 else torch.tensor(1.0)
    return (magnitudes.clamp(min=float(least)) / LEVELS).float()[None, :, None]


def _wide(x: Tensor) -> Tensor:
    """Return x in float32, or as it is where it is float64."""
    return x if x.dtype == torch.float64 else x.float()


def _levels(x: Tensor, scale: Tensor) -> Tensor:
    x = _wide(x) * _wide(scale).reciprocal()
    if torch.onnx.is_in_onnx_export():
        one, zero_point = torch.tensor(1.0), torch.tensor(0, dtype=torch.int8)
        # With one scale for all, the operator is a single fast pass. With one for each channel it would take numbers
        # singly. So x has been multiplied before.
        rounded: Tensor = torch.onnx.ops.symbolic(
            "::QuantizeLinear", (x, one, zero_point), dtype=torch.int8, shape=x.shape, version=21
        )
        return rounded
    return x.round().clamp(_LEAST_LEVEL, LEVELS).to(torch.int8)
