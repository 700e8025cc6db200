"""The ways to round the weights of a product in blocks, and which of them a precision tries."""

from collections.abc import Sequence
from enum import Enum

from torch import Tensor, nn

from weft_export.choices import BLOCKS
from weft_export.layers.block_linear import EIGHT_BITS, FOUR_BITS, BlockEmbedding, BlockLinear, Blocks, rounded_rows
from weft_export.layers.embeddings import TiedEmbedding
from weft_export.layers.nf4_linear import BLOCK, Nf4Linear
from weft_export.quantization.gptq import compensated_blocks
from weft_proto.v1 import bundle_pb2

Rounded = BlockEmbedding | BlockLinear | Nf4Linear
"""What stands for a product whose weights are rounded in blocks."""


class BlockKind(Enum):
    """One way, by the number of bits of a weight, and of weights of a block where it is not the least."""

    INT4 = "4"
    INT4_64 = "4, 64"
    INT4_128 = "4, 128"
    INT8 = "8"
    INT8_128 = "8, 128"
    NF4 = "4, NF4"
    # What is multiplied by them is not rounded.
    INT4_ALONE = "4, weights alone"
    INT8_ALONE = "8, weights alone"

    @property
    def bits(self) -> int:
        """How many bits a weight has."""
        return _BLOCKS[self].bits

    @property
    def block_size(self) -> int:
        """How many weights have one scale."""
        return _BLOCKS[self].size


_BLOCKS = {
    BlockKind.INT4: FOUR_BITS,
    BlockKind.INT4_64: FOUR_BITS._replace(size=64),
    BlockKind.INT4_128: FOUR_BITS._replace(size=128),
    BlockKind.INT8: EIGHT_BITS,
    BlockKind.INT8_128: EIGHT_BITS._replace(size=128),
    BlockKind.INT4_ALONE: FOUR_BITS._replace(rounds_inputs=False),
    BlockKind.INT8_ALONE: EIGHT_BITS._replace(rounds_inputs=False),
    BlockKind.NF4: Blocks(4, BLOCK, rounds_inputs=False),
}
_KINDS = {blocks: kind for kind, blocks in _BLOCKS.items()}
# From the smallest to the one that loses least.
_LADDERS = {
    bundle_pb2.PRECISION_INT4: (BlockKind.INT4, BlockKind.INT8),
    bundle_pb2.PRECISION_INT8_WEIGHTS: (BlockKind.INT8,),
    bundle_pb2.PRECISION_NF4: (BlockKind.NF4,),
    bundle_pb2.PRECISION_INT4_FP16: (BlockKind.INT4_ALONE, BlockKind.INT8_ALONE),
}


def larger_kinds(precision: bundle_pb2.Precision.ValueType, max_block_size: int) -> Sequence[BlockKind]:
    """Return the ways that have larger blocks than the least of the ladder, from the largest on.

    They are for products whose runs have even numbers of rows.
    """
    sizes = [size for size in BLOCKS.get(precision, ())[:-1] if size <= max_block_size]
    return [_KINDS[_BLOCKS[_LADDERS[precision][0]]._replace(size=size)] for size in sizes]


def ladder_of(product: nn.Linear | TiedEmbedding, precision: bundle_pb2.Precision.ValueType) -> tuple[BlockKind, ...]:
    """Return the ways that a precision has for a product, from the smallest to the one that loses least."""
    ladder = _LADDERS[precision]
    # No operator looks up rows of NF4.
    return ladder if isinstance(product, nn.Linear) or BlockKind.NF4 not in ladder else (BlockKind.INT8,)


def rounded(product: nn.Linear | TiedEmbedding, kind: BlockKind, inputs: Tensor | None = None) -> Rounded:
    """Return what stands for a product whose weights are rounded.

    inputs [rows, width] are what it reads, as far as that is known.
    """
    if isinstance(product, TiedEmbedding):
        return BlockEmbedding(product.weight, _BLOCKS[kind])
    return _linear(product.weight, product.bias, kind, inputs)


def rounded_weights(weight: Tensor, kind: BlockKind) -> Tensor:
    """Return weights [n, width] as they are after rounding each by itself, in float32."""
    return _linear(weight, None, kind, None).wide


def rounded_inputs(rows: Tensor, kind: BlockKind) -> Tensor:
    """Return activations [n, width] as they are when they are multiplied by such weights."""
    blocks = _BLOCKS[kind]
    return rounded_rows(rows, blocks.size) if blocks.rounds_inputs else rows


def _linear(weight: Tensor, bias: Tensor | None, kind: BlockKind, inputs: Tensor | None) -> BlockLinear | Nf4Linear:
    if kind is BlockKind.NF4:
        return Nf4Linear(weight, bias)
    # Of 8 bits the grid is so fine that there is nothing to make good.
    levels = (
        compensated_blocks(weight.detach().float(), inputs, _BLOCKS[kind])
        if kind.bits == FOUR_BITS.bits and inputs is not None
        else None
    )
    return BlockLinear(weight, bias, _BLOCKS[kind], levels)
