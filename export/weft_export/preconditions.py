"""What goes with what in an export, as far as that is known before a checkpoint is read: quick, and without torch."""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from weft_export.errors import ExportError
from weft_proto.bundle_rules import HOST_PRECISIONS, ROUNDED, precision_name
from weft_proto.paging import PAGED_PRECISIONS
from weft_proto.v1 import bundle_pb2


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

PRECISIONS = {
    "fp32": bundle_pb2.PRECISION_FP32,
    "fp16": bundle_pb2.PRECISION_FP16,
    "bf16": bundle_pb2.PRECISION_BF16,
    "int8": bundle_pb2.PRECISION_INT8,
    "int8-weights": bundle_pb2.PRECISION_INT8_WEIGHTS,
    "int4": bundle_pb2.PRECISION_INT4,
    "nf4": bundle_pb2.PRECISION_NF4,
}
PRODUCTS = ("qkv", "query", "key", "value", "output", "gate", "inner", "outer")
"""What the products of a layer are called, by those who want adapters of some of them."""


def check_precision(
    precision: bundle_pb2.Precision.ValueType,
    *,
    held_out: Path | None = None,
    mixed_runs: bool = False,
    adapters: bool = False,
    paged: bool = False,
) -> None:
    """Raise ExportError for what no server does in this precision, or what is only for another."""
    if paged and precision not in PAGED_PRECISIONS:
        raise ExportError(f"--paged is for fp16 and bf16, on CUDA; at {precision_name(precision)} caches lie in slots")
    if adapters and precision not in HOST_PRECISIONS:
        raise ExportError("adapters are not for fp16 and bf16: no server runs them on a device")
    if mixed_runs and precision not in HOST_PRECISIONS:
        raise ExportError("mixed runs are not for fp16 and bf16: no server runs them on a device")
    if held_out is not None and precision not in ROUNDED:
        raise ExportError("held-out examples are for int8 and the like, whose rounding they measure")


def products(names: str | None) -> tuple[str, ...]:
    """Read which products of a layer shall take adapters: names with commas between, or all. Raises ExportError."""
    chosen = PRODUCTS if names is None else tuple(name.strip() for name in names.split(","))
    for name in chosen:
        if name not in PRODUCTS:
            raise ExportError(f"{name!r:.60} is no product of a layer; these are: {', '.join(PRODUCTS)}")
    return chosen


def check_labels(labels: tuple[str, ...], *, adapters: bool) -> None:
    """Raise ExportError for a bundle whose adapters could not be made: nothing says afterwards what was chosen."""
    if adapters and labels:
        raise ExportError("adapters are not for labels that stay: leave out --labels, or --adapters")
