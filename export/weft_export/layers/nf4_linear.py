"""NF4 of "QLoRA" (Dettmers et al. 2023): weights of 4 bits that stand for 16 levels of a normal distribution.

A graph holds them as they are, and the operators that make float32 of them. ONNX Runtime runs these when it opens the
graph, and never again. So a bundle is small, and a step is that of float32. `com.microsoft::MatMulBnb4` widens weights
in each run instead, and a row's bits depend on its batch: docs/decisions/weights-in-blocks.md.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

LEVELS = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
"""Quantiles of a normal distribution, scaled to [-1, 1] (Appendix E of the paper)."""

BLOCK = 64
"""So many weights in a row share a scale, their largest magnitude."""
SCALES_BLOCK = 256
"""So many scales share a scale of theirs (section 3, double quantisation)."""
# The largest number of float8_e4m3fn.
_FLOAT8_MAX = 448.0
# So many weights are rounded at a time: torch puts them into 32 bits each. It is a multiple of BLOCK.
_AT_ONCE = 1 << 22


def double_quantise(scales: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Round scales [n], all positive: codes float8_e4m3fn [m, SCALES_BLOCK], a scale for each row of them, a mean [1].

    A scale is code * scale of its row + mean. The last row is filled up. The paper takes 8-bit floats, and takes the
    mean away before, so that both signs are used.
    """
    mean = scales.mean(dim=0, keepdim=True)
    rows = functional.pad(scales - mean, (0, -len(scales) % SCALES_BLOCK)).view(-1, SCALES_BLOCK)
    largest = rows.abs().amax(dim=1, keepdim=True)
    row_scales = torch.where(largest > 0, largest / _FLOAT8_MAX, 1.0)
    return (rows / row_scales).to(torch.float8_e4m3fn), row_scales, mean


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round weights [...] to places in LEVELS, uint8 [number of weights], and scales [number of blocks].

    A block is of BLOCK weights in a row, wherever a row of the matrix ends.
    """
    levels = torch.tensor(LEVELS)
    between = (levels[1:] + levels[:-1]) / 2
    places, scales = [], []
    weights = weight.flatten()
    for first in range(0, len(weights), _AT_ONCE):
        part = weights[first : first + _AT_ONCE]
        values = functional.pad(part, (0, -len(part) % BLOCK)).view(-1, BLOCK)
        largest = values.abs().amax(dim=1, keepdim=True)
        shares = (values / torch.where(largest > 0, largest, 1.0)).flatten()[: len(part)]
        places.append(torch.bucketize(shares, between, out_int32=True).to(torch.uint8))
        scales.append(largest[:, 0])
    return torch.cat(places), torch.cat(scales)


class Nf4Linear(nn.Module):
    """Stands for an nn.Linear of this weight [d_out, d_in] and bias."""

    packed: Tensor
    codes: Tensor
    scale: Tensor
    mean: Tensor
    wide: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach().float()
        places, scales = quantise(weight)
        codes, scale, mean = double_quantise(scales)
        self.num_blocks = len(scales)
        pairs = functional.pad(places, (0, len(places) % 2)).view(-1, 2)
        self.register_buffer("packed", pairs[:, 0] << 4 | pairs[:, 1])
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("mean", mean)
        self.register_buffer("wide", _widened(places, self._scales()).view_as(weight))
        self.register_buffer("bias", None if bias is None else bias.detach().float())

    def _scales(self) -> Tensor:
        """Return the scale of each block, [num_blocks]."""
        return (self.codes.float() * self.scale + self.mean).flatten()[: self.num_blocks]

    def product(self, x: Tensor) -> Tensor:
        """Multiply x [..., d_in] by the transposed weights: [..., d_out]."""
        return functional.linear(x, self._weight())

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., d_in] to [..., d_out]."""
        return functional.linear(x, self._weight(), self.bias)

    def _weight(self) -> Tensor:
        return self._emitted() if torch.onnx.is_in_onnx_export() else self.wide

    def _emitted(self) -> Tensor:
        """Return `wide` by operators that a graph can have."""
        number = self.wide.numel()
        # A byte holds two levels, the first in its upper half.
        pairs = torch.cartesian_prod(torch.tensor(LEVELS), torch.tensor(LEVELS))
        shares = pairs.index_select(0, self.packed.int()).flatten()[:number]
        blocks = functional.pad(shares, (0, -number % BLOCK)).view(-1, BLOCK) * self._scales()[:, None]
        return blocks.flatten()[:number].view_as(self.wide)


def _widened(places: Tensor, scales: Tensor) -> Tensor:
    """Return the weights that places and the scales of their blocks stand for, [number of weights]."""
    levels = torch.tensor(LEVELS)
    parts = []
    for first in range(0, len(places), _AT_ONCE):
        shares = levels[places[first : first + _AT_ONCE].int()]
        own = scales[first // BLOCK : (first + _AT_ONCE) // BLOCK]
        parts.append(shares * own.repeat_interleave(BLOCK)[: len(shares)])
    return torch.cat(parts)
