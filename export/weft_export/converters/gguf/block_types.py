"""The types of ggml: how a row of weights lies in a file as blocks, and what it is in float32.

ggml's own sources state each layout: ggml-common.h has the structs, ggml-quants.c what their bits mean. Each function
takes blocks as bytes, uint8 [n, num_bytes], and gives float32 [n, numbers].
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# So many numbers are widened at a time: beside the result little memory is needed.
_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class BlockType:
    """One type: its name, and how many numbers a block has in how many bytes."""

    name: str
    numbers: int
    num_bytes: int
    wide: Callable[[Tensor], Tensor]

    @property
    def is_rounded(self) -> bool:
        """Whether a block shares scales: the type is no plain float."""
        return self.numbers > 1


def widened(content: Tensor, shape: tuple[int, ...], kind: BlockType) -> Tensor:
    """Return a tensor in float32. content is its bytes, uint8 [num_bytes]."""
    blocks = content.view(-1, kind.num_bytes)
    out = torch.empty(len(blocks), kind.numbers)
    step = max(1, _AT_ONCE // kind.numbers)
    for first in range(0, len(blocks), step):
        out[first : first + step] = kind.wide(blocks[first : first + step])
    return out.view(shape)


def _half(blocks: Tensor, first: int) -> Tensor:
    """Return the float16 at a byte of each block: [n, 1]."""
    return blocks[:, first : first + 2].contiguous().view(torch.float16).float()


def _bits(part: Tensor, width: int, count: int) -> Tensor:
    """Take bytes [n, m] apart into numbers of so many bits: [n, count, m], the lowest bits first."""
    shifts = torch.arange(0, width * count, width, dtype=torch.uint8)
    return (part[:, None, :] >> shifts[:, None]) & (1 << width) - 1


def _halves(part: Tensor) -> Tensor:
    """Return numbers of 4 bits: the lower halves of all bytes, then the upper ones."""
    return _bits(part, 4, 2).flatten(1)


def _signed(part: Tensor) -> Tensor:
    return part.contiguous().view(torch.int8).float()


def _float(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda blocks: blocks.contiguous().view(dtype).float()


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_halves(blocks[:, 2:]).float() - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _halves(blocks[:, 4:]).float() + _half(blocks, 2)


def _fifth(part: Tensor) -> Tensor:
    """Return the fifth bits of 32 numbers, which lie in 4 bytes: [n, 32]."""
    return _bits(part, 1, 8).transpose(1, 2).flatten(1)


def _q5_0(blocks: Tensor) -> Tensor:
    levels = _halves(blocks[:, 6:]) | _fifth(blocks[:, 2:6]) << 4
    return _half(blocks, 0) * (levels.float() - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    levels = _halves(blocks[:, 8:]) | _fifth(blocks[:, 4:8]) << 4
    return _half(blocks, 0) * levels.float() + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _signed(blocks[:, 2:])


def _q2_k(blocks: Tensor) -> Tensor:
    scales = blocks[:, :16]
    scale = _half(blocks, 80) * (scales & 15).float()
    least = _half(blocks, 82) * (scales >> 4).float()
    levels = _bits(blocks[:, 16:80].reshape(-1, 32), 2, 4).reshape(-1, 16, 16)
    return (scale[..., None] * levels.float() - least[..., None]).flatten(1)


def _q3_k(blocks: Tensor) -> Tensor:
    low, high = _halves(blocks[:, 96:104]), _bits(blocks[:, 104:108], 2, 4).flatten(1)
    scale = _half(blocks, 108) * ((low | high << 4).float() - 32)
    levels = _bits(blocks[:, 32:96].reshape(-1, 32), 2, 4).reshape(-1, 16, 16).float()
    # Where the third bit is not set, the level is 4 lower.
    third = _bits(blocks[:, :32], 1, 8).reshape(-1, 16, 16).float()
    return (scale[..., None] * (levels - 4 * (1 - third))).flatten(1)


def _scales_of_k(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return scale and least value of each 32 numbers, both [n, 8, 1]: 6 bits each, spread over 12 bytes."""
    first, second, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale = torch.cat([first & 63, rest & 15 | first >> 6 << 4], dim=1)
    least = torch.cat([second & 63, rest >> 4 | second >> 6 << 4], dim=1)
    return (_half(blocks, 0) * scale.float())[..., None], (_half(blocks, 2) * least.float())[..., None]


def _q4_k(blocks: Tensor) -> Tensor:
    scale, least = _scales_of_k(blocks)
    levels = _bits(blocks[:, 16:].reshape(-1, 32), 4, 2).reshape(-1, 8, 32)
    return (scale * levels.float() - least).flatten(1)


def _q5_k(blocks: Tensor) -> Tensor:
    scale, least = _scales_of_k(blocks)
    low = _bits(blocks[:, 48:].reshape(-1, 32), 4, 2).reshape(-1, 8, 32)
    levels = low | _bits(blocks[:, 16:48], 1, 8) << 4
    return (scale * levels.float() - least).flatten(1)


def _q6_k(blocks: Tensor) -> Tensor:
    scale = _half(blocks, 208) * _signed(blocks[:, 192:208])
    low = _bits(blocks[:, :128].reshape(-1, 64), 4, 2).reshape(-1, 8, 32)
    high = _bits(blocks[:, 128:192].reshape(-1, 32), 2, 4).reshape(-1, 8, 32)
    levels = (low | high << 4).reshape(-1, 16, 16).float() - 32
    return (scale[..., None] * levels).flatten(1)


# The levels of IQ4, which lie closer to each other near 0.
_UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _uneven(part: Tensor) -> Tensor:
    return torch.tensor(_UNEVEN, dtype=torch.float32)[part.long()]


def _iq4_nl(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _uneven(_halves(blocks[:, 2:]))


def _iq4_xs(blocks: Tensor) -> Tensor:
    high = _bits(blocks[:, 2:4], 2, 4).transpose(1, 2).flatten(1)
    low = _bits(blocks[:, 4:8], 4, 2).transpose(1, 2).flatten(1)
    scale = _half(blocks, 0) * ((low | high << 4).float() - 32)
    levels = _bits(blocks[:, 8:].reshape(-1, 16), 4, 2).reshape(-1, 8, 32)
    return (scale[..., None] * _uneven(levels)).flatten(1)


# By the numbers of `enum ggml_type`.
BLOCK_TYPES = {
    0: BlockType("F32", 1, 4, _float(torch.float32)),
    1: BlockType("F16", 1, 2, _float(torch.float16)),
    30: BlockType("BF16", 1, 2, _float(torch.bfloat16)),
    2: BlockType("Q4_0", 32, 18, _q4_0),
    3: BlockType("Q4_1", 32, 20, _q4_1),
    6: BlockType("Q5_0", 32, 22, _q5_0),
    7: BlockType("Q5_1", 32, 24, _q5_1),
    8: BlockType("Q8_0", 32, 34, _q8_0),
    10: BlockType("Q2_K", 256, 84, _q2_k),
    11: BlockType("Q3_K", 256, 110, _q3_k),
    12: BlockType("Q4_K", 256, 144, _q4_k),
    13: BlockType("Q5_K", 256, 176, _q5_k),
    14: BlockType("Q6_K", 256, 210, _q6_k),
    20: BlockType("IQ4_NL", 32, 18, _iq4_nl),
    23: BlockType("IQ4_XS", 256, 136, _iq4_xs),
}
# Those that are not read, for an error that calls them by their names.
OTHER_TYPES = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}
