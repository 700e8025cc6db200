"""What options of an export choose from: precisions, poolings and products."""

from enum import StrEnum
from typing import NamedTuple

from weft_proto.v1 import bundle_pb2


class Precision(StrEnum):
    """What a bundle computes in."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT8_WEIGHTS = "int8-weights"
    INT4 = "int4"
    NF4 = "nf4"
    INT4_FP16 = "int4-fp16"


PRECISIONS = {each: bundle_pb2.Precision.Value(f"PRECISION_{each.name}") for each in Precision}
"""As the manifest of a bundle says them."""
COMPENSATED = frozenset({bundle_pb2.PRECISION_INT4, bundle_pb2.PRECISION_INT4_FP16})
"""Precisions at which what one column loses, later ones make good."""
BLOCK_SIZES = (32, 64, 128)
"""How many weights may share a scale."""
BLOCKS = {bundle_pb2.PRECISION_INT4: (128, 64, 32), bundle_pb2.PRECISION_INT8_WEIGHTS: (128, 64)}
"""What sizes of blocks a precision tries: from the largest on as far as answers allow them, and else the least.

Weights of 8 bits, of which int4 has some, have 64 at least."""


class Pooling(StrEnum):
    """How the places of an input become one vector."""

    CLS = "cls"
    MEAN = "mean"
    LAST = "last"
    MAX = "max"


class PoolingNames(NamedTuple):
    """What one way of pooling is called: by our families, in a bundle, and by sentence-transformers.

    word is that of its files since version 5, and flag the key that was true before.
    """

    family: str
    number: bundle_pb2.Pooling.ValueType
    word: str
    flag: str


POOLINGS = {
    Pooling.CLS: PoolingNames("first", bundle_pb2.POOLING_FIRST, "cls", "pooling_mode_cls_token"),
    Pooling.MEAN: PoolingNames("mean", bundle_pb2.POOLING_MEAN, "mean", "pooling_mode_mean_tokens"),
    Pooling.LAST: PoolingNames("last", bundle_pb2.POOLING_LAST, "lasttoken", "pooling_mode_lasttoken"),
    Pooling.MAX: PoolingNames("max", bundle_pb2.POOLING_MAX, "max", "pooling_mode_max_tokens"),
}

PRODUCTS = ("qkv", "query", "key", "value", "output", "gate_proj", "up_proj", "down_proj")
"""What the products of a layer are called, by those who want adapters of some of them."""

MAX_RANK = 256
"""The highest rank of adapters that a bundle takes."""
