"""Products whose weights are integers in blocks, with a scale for each block of a row of weights.

`com.microsoft::MatMulNBits` at accuracy level 4 cuts a row of activations into the same blocks, and rounds each to 8
bits by its own largest value as it comes. So a row's bits do not depend on its batch, for the sizes of blocks below.
With others they do: docs/decisions/weights-in-blocks.md. The torch branch rounds to the same levels, and adds up in
another order.
"""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Blocks(NamedTuple):
    """How weights are rounded: to so many bits, in blocks of so many weights with one scale.

    rounds_inputs: whether what they are multiplied by is rounded too, as accuracy level 4 does.
    """

    bits: int
    size: int
    rounds_inputs: bool = True


FOUR_BITS = Blocks(4, 32)
EIGHT_BITS = Blocks(8, 64)
MAX_ALONE = {blocks.bits: blocks.size for blocks in (FOUR_BITS, EIGHT_BITS)}
"""The largest blocks whose products have the same bits for any number of rows, by the number of bits of a weight.

With larger ones that is so of even numbers: docs/decisions/weights-in-blocks.md.
"""

MAX_WEIGHT = 400_000
"""Of larger weights, float16 has no scale."""
# The levels that the largest weight of a block may become, which fixes the scale. The one that fits all best is taken.
# Of 8 bits the grid is so fine that it does not matter.
_SPANS = {4: (8.0, 7.5, 7.0, 8.5, 9.0, 6.5), 8: (127.0,)}
# Those of an embedding. Where the largest level is even, the level of half its size lies between two of the 127 levels
# that the first product rounds to, and one last bit of a norm would decide about many. So it is always 7.
_ODD_SPANS = {4: (7.0, 7.2, 7.4, 6.8, 6.6), 8: (127.0,)}
# And lower ones, for weights that were rounded so before: their scale is found again, whatever their largest level is.
_LOWER_SPANS = {4: (6.0, 5.0, 4.0, 3.0, 2.0, 1.0), 8: ()}
_LEVELS = 127
# So many weights are rounded at a time: what that needs of memory does not grow with a model's tables.
_AT_ONCE = 1 << 22


def goes_in_pairs(bits: int, size: int) -> bool:
    """Whether a product of such blocks has the same bits for even numbers of rows alone."""
    return size > MAX_ALONE.get(bits, 0)


def quantise_blocks(
    weight: Tensor, blocks: Blocks, *, odd: bool = False, importance: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Round weights [n, width] to levels uint8 [n, num_blocks, size], and scales float16 [n, num_blocks].

    odd asks for blocks whose largest level is odd, on either side. importance [width] says how much an error of each
    weight of a row counts, where a scale is chosen.
    A weight is (level - 2^(bits - 1)) * scale. Weights that are such numbers of 4 bits already stay what they are,
    unless odd is asked for. A last block that is not full has weights of 0 behind its own.
    """
    step = max(1, _AT_ONCE // weight.shape[1])
    counts = None if importance is None else in_blocks(importance, blocks.size)
    parts = [_quantise(weight[first : first + step], blocks, counts, odd=odd) for first in range(0, len(weight), step)]
    levels, scales = zip(*parts, strict=True)
    return torch.cat(levels), torch.cat(scales)


def _quantise(weight: Tensor, blocks: Blocks, counts: Tensor | None, *, odd: bool) -> tuple[Tensor, Tensor]:
    values = in_blocks(weight, blocks.size)
    extreme = values.gather(-1, values.abs().argmax(dim=-1, keepdim=True))
    zero = 1 << blocks.bits - 1
    best = torch.full_like(extreme, torch.inf)
    levels, scales = torch.zeros_like(values, dtype=torch.uint8), torch.ones_like(extreme, dtype=torch.float16)
    spans = (_ODD_SPANS if odd else _SPANS)[blocks.bits]
    for index, span in enumerate((*spans, *_LOWER_SPANS[blocks.bits])):
        if index == len(spans) and not bool(((best == 0) & (extreme != 0)).any()):
            break  # not one block lies on a grid: a coarser one would only lose more
        # The largest weight has a negative level, of which there is one more.
        scale = (extreme / -span).half()
        scale = torch.where(scale == 0, 1, scale)
        rounded = (values / scale.float()).round().clamp(odd - zero, zero - 1)
        errors = (rounded * scale.float() - values).square()
        error = (errors if counts is None else errors * counts).sum(dim=-1, keepdim=True)
        better = error < best
        best = torch.where(better, error, best)
        scales = torch.where(better, scale, scales)
        levels = torch.where(better, (rounded + zero).to(torch.uint8), levels)
    return levels, scales[..., 0]


def in_blocks(rows: Tensor, size: int) -> Tensor:
    """Cut rows [..., width] into blocks [..., num_blocks, size], the last one filled up with zeros."""
    return functional.pad(rows, (0, -rows.shape[-1] % size)).reshape(*rows.shape[:-1], -1, size)


def rounded_rows(x: Tensor, size: int) -> Tensor:
    """Return activations [..., width] as they are after rounding in blocks: 8 bits by each block's largest value."""
    values = in_blocks(x, size)
    largest = values.abs().amax(dim=-1, keepdim=True)
    # A tensor, since of a number torch would multiply it by 1 / largest: another last bit, and many values of rounded
    # embeddings lie just between two levels. It is made of another, since the body of a scan takes no new constants.
    # A block of zeros has no levels. Any number may stand for them.
    most = torch.full_like(largest, _LEVELS)
    levels = (values * (most / largest)).round().nan_to_num()
    return (levels * (largest / most)).flatten(-2)[..., : x.shape[-1]]


class _BlockProduct(nn.Module):
    """Weights [n, width] in blocks. `wide` is what they are in float32, [n, width], for torch."""

    packed: Tensor
    scale: Tensor
    wide: Tensor

    def __init__(self, weight: Tensor, blocks: Blocks, levels: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.blocks = blocks
        zero = 1 << blocks.bits - 1
        wide = (levels.float() - zero) * scale.float()[..., None]
        self.register_buffer("wide", wide.flatten(1)[:, : weight.shape[1]].contiguous())
        self.register_buffer("packed", _packed(levels, blocks.bits))
        self.register_buffer("scale", scale)

    def product(self, x: Tensor) -> Tensor:
        """Multiply x [..., width] by the transposed weights: [..., n]."""
        if not torch.onnx.is_in_onnx_export():
            rows = rounded_rows(x, self.blocks.size) if self.blocks.rounds_inputs else x
            return functional.linear(rows, self.wide)
        num_columns, width = self.wide.shape
        return torch.onnx.ops.symbolic(
            "com.microsoft::MatMulNBits",
            (x, self.packed, self.scale.to(x.dtype)),
            {
                "K": width,
                "N": num_columns,
                "bits": self.blocks.bits,
                "block_size": self.blocks.size,
                "accuracy_level": 4 if self.blocks.rounds_inputs else 0,
            },
            dtype=x.dtype,
            shape=(*x.shape[:-1], num_columns),
            version=1,
        )


class BlockLinear(_BlockProduct):
    """Stands for an nn.Linear of this weight [d_out, d_in] and bias.

    rounded are its levels and scales, if they were found in another way than by quantise_blocks.
    """

    bias: Tensor | None

    def __init__(
        self, weight: Tensor, bias: Tensor | None, blocks: Blocks, rounded: tuple[Tensor, Tensor] | None = None
    ) -> None:
        super().__init__(weight, blocks, *(rounded or quantise_blocks(weight.detach().float(), blocks)))
        self.register_buffer("bias", None if bias is None else bias.detach().float())

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., d_in] to [..., d_out]."""
        out = self.product(x)
        return out if self.bias is None else out + self.bias

    def beside(self, other: "BlockLinear") -> "BlockLinear":
        """Return one product that writes what this one writes [..., d_out], and behind it what another one does.

        Both read the same, and are rounded alike.
        """
        both = copy.deepcopy(self)
        for name, buffer in self.named_buffers():
            both.register_buffer(name, torch.cat((buffer, other.get_buffer(name))))
        return both


class BlockEmbedding(_BlockProduct):
    """Stands for a TiedEmbedding: the rows that are looked up are the columns of the projection too."""

    def __init__(self, weight: Tensor, blocks: Blocks) -> None:
        super().__init__(weight, blocks, *quantise_blocks(weight.detach().float(), blocks, odd=True))

    def forward(self, ids: Tensor) -> Tensor:
        """Return E[token] for ids [...]: [..., d_model]."""
        if not torch.onnx.is_in_onnx_export():
            return functional.embedding(ids, self.wide)
        num_blocks, size = self.scale.shape[1], self.blocks.size
        # Of three axes, as the product takes them: so both read the same tensor.
        vectors = torch.onnx.ops.symbolic(
            "com.microsoft::GatherBlockQuantized",
            (self.packed, ids, self.scale[..., None].to(self.wide.dtype)),
            {"gather_axis": 0, "quantize_axis": 2, "block_size": size, "bits": self.blocks.bits},
            dtype=self.wide.dtype,
            shape=(*ids.shape, num_blocks, size),
            version=1,
        )
        return vectors.flatten(-2)[..., : self.wide.shape[1]]

    def logits(self, x: Tensor) -> Tensor:
        """Project x [..., d_model] to [..., vocab] with the embedding itself."""
        return self.product(x)


def _packed(levels: Tensor, bits: int) -> Tensor:
    """Lay levels uint8 [..., size] into bytes. Of two levels of 4 bits, the first has the lower half."""
    return levels if bits == 8 else levels[..., 0::2] | levels[..., 1::2] << 4
