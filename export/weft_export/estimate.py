"""What an export would make and take, from a checkpoint whose weights nobody has read yet."""

import math
from dataclasses import dataclass

from torch import nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.choices import COMPENSATED
from weft_export.families.writer import RECURRENT, Writer
from weft_export.graphs.graphs import states_of
from weft_export.layers.embeddings import TiedEmbedding
from weft_export.layers.quantized_linear import MIN_COLUMNS
from weft_proto.bundle_rules import FLOAT_TYPE, HOST_PRECISIONS, ROUNDED
from weft_proto.v1 import bundle_pb2

_BYTES = {
    bundle_pb2.DATA_TYPE_FLOAT32: 4,
    bundle_pb2.DATA_TYPE_FLOAT16: 2,
    bundle_pb2.DATA_TYPE_BFLOAT16: 2,
    bundle_pb2.DATA_TYPE_INT8: 1,
}
# What any export takes: torch, ONNX Runtime and the tracing. docs/log-of-speed.md, 2026-11-22 and 2026-11-23.
_BASE_BYTES = 480 * 10**6
# And beside it, in sizes of the weights at float32. Decoders of 1,300 million parameters took 2.2 at fp32 and 2.7 at
# int8, and smaller ones 3.4 at fp16.
_PEAK = {
    bundle_pb2.PRECISION_FP32: 2.3,
    bundle_pb2.PRECISION_FP16: 3.4,
    bundle_pb2.PRECISION_BF16: 3.4,
    **dict.fromkeys(ROUNDED, 2.9),
}
# Where a context ends, parity fills the states of one sequence, and torch returns them anew.
_PARITY_SLOTS = 2
# For any export.
_BASE_SECONDS = 8.0
# For a module that has weights: its graphs are traced, and torch and ONNX Runtime run them. One of a model that writes
# is run token by token. SmolLM2-135M took 127 seconds at fp32 on 2026-11-26, and a BERT of 12 layers 39.
_SECONDS_FOR_A_MODULE, _SECONDS_FOR_A_WRITING_MODULE = 0.25, 0.4
# And for a million parameters: a decoder of 1,300 million took 250 seconds at fp32 and 450 at int8 on 2026-11-23.
_SECONDS_FOR_A_MILLION = {
    bundle_pb2.PRECISION_FP32: 0.12,
    bundle_pb2.PRECISION_FP16: 0.19,
    bundle_pb2.PRECISION_BF16: 0.19,
    **dict.fromkeys(ROUNDED, 0.27),
}
# And for a megabyte of tokenizers: Gemma 3's 262,000 pieces are 33, and are read and written several times.
_SECONDS_FOR_A_MEGABYTE = 0.25
# At 4 bits, for a product of n columns that reads `width` numbers: this times width^2 (width + 2 n). One of 2,048 that
# reads 8,192 took 23 seconds on one core of an AMD EPYC (Zen 5), one of 8,192 that reads 2,048 took 4, on 2026-11-28.
_SECONDS_FOR_GPTQ = 3.5e-11
# Of a rounded weight, scales included: of a product, and of a table of tokens.
_ROUNDED_BYTES = {
    bundle_pb2.PRECISION_INT8: (1, 1),
    bundle_pb2.PRECISION_INT8_WEIGHTS: (1 + 2 / 64, 1 + 2 / 64),
    bundle_pb2.PRECISION_INT4: (0.5 + 2 / 32, 0.5 + 2 / 32),
    bundle_pb2.PRECISION_NF4: (0.5 + 1 / 64, 1 + 2 / 64),
    bundle_pb2.PRECISION_INT4_FP16: (0.5 + 2 / 32, 0.5 + 2 / 32),
}
# What a server takes beside weights and slots: of the demo's topics and pydocs, on 2026-11-23.
_SERVER_BYTES = 130 * 10**6


@dataclass(frozen=True)
class Estimate:
    """Sizes in bytes. The bundle's and a slot's are counted; the others are near what was measured of other models."""

    num_parameters: int
    bundle_bytes: int
    slot_bytes: int
    server_bytes: int
    peak_bytes: int
    seconds: float


def estimate(
    checkpoint: Checkpoint,
    precision: bundle_pb2.Precision.ValueType,
    num_slots: int = 0,
    *,
    mixed_runs: bool = False,
) -> Estimate:
    """Estimate a bundle of a checkpoint, and a server with so many slots; its weights may lie on meta.

    With mixed_runs, the server holds the decoder's weights twice: of a model that generates, they are all there are.
    So it does of a model that reads stretches of prompts in both directions.
    """
    number = sum(parameter.numel() for parameter in checkpoint.model.parameters())
    weights = number * _BYTES[FLOAT_TYPE[precision]]
    if precision in ROUNDED:
        weights -= _saved_bytes(checkpoint.model, precision, _BYTES[FLOAT_TYPE[precision]])
    weights += sum(table.nbytes for table in checkpoint.model.buffers())
    files = sum(map(len, checkpoint.files.values()))
    twice = mixed_runs or bool(getattr(checkpoint.model, "bidirectional", False))
    slot = _slot_bytes(checkpoint.model, precision)
    full_slot = _slot_bytes(checkpoint.model, bundle_pb2.PRECISION_FP32)
    return Estimate(
        num_parameters=number,
        bundle_bytes=weights + files,
        slot_bytes=slot,
        server_bytes=_SERVER_BYTES + (2 if twice else 1) * weights + num_slots * slot,
        peak_bytes=int(_BASE_BYTES + 4 * number * _PEAK[precision] + _PARITY_SLOTS * full_slot),
        seconds=seconds_of(checkpoint.model, precision, files),
    )


def seconds_of(model: nn.Module, precision: bundle_pb2.Precision.ValueType, file_bytes: int) -> float:
    """Estimate how long an export of a model takes, whose files beside the weights have so many bytes."""
    number = sum(parameter.numel() for parameter in model.parameters())
    num_modules = sum(next(module.parameters(recurse=False), None) is not None for module in model.modules())
    of_each = _SECONDS_FOR_A_WRITING_MODULE if isinstance(model, Writer) else _SECONDS_FOR_A_MODULE
    of_weights = _SECONDS_FOR_A_MILLION[precision] * number / 1e6
    of_files = _SECONDS_FOR_A_MEGABYTE * file_bytes / 1e6
    return _BASE_SECONDS + of_each * num_modules + of_weights + of_files + _seconds_of_gptq(model, precision)


def _seconds_of_gptq(model: nn.Module, precision: bundle_pb2.Precision.ValueType) -> float:
    if precision not in COMPENSATED:
        return 0.0
    shapes = [(each.out_features, each.in_features) for each in model.modules() if isinstance(each, nn.Linear)]
    return _SECONDS_FOR_GPTQ * sum(width**2 * (width + 2 * columns) for columns, width in shapes)


def summary(made: Estimate) -> str:
    """Say how long an export takes, and how much memory, as far as that is known before."""
    return f"{duration(made.seconds)}, {made.peak_bytes / 1e9:.1f} GB of memory"


def size(num_bytes: float) -> str:
    """Return a number of bytes as people write it."""
    for unit in ("kB", "MB"):
        num_bytes /= 1000
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
    return f"{num_bytes / 1000:.3g} GB"


def duration(seconds: float) -> str:
    """Return a time as people write it."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _slot_bytes(model: nn.Module, precision: bundle_pb2.Precision.ValueType) -> int:
    """How much a sequence's states take. Where weights are rounded, those of attention are too."""
    rounds = precision in ROUNDED & HOST_PRECISIONS and isinstance(model, Writer) and bool(model.cached_attentions)
    return sum(
        math.prod(state.shape) * (1 if rounds and state.kind != RECURRENT else _BYTES[state.data_type])
        for state in states_of(model, precision)
    )


def _saved_bytes(model: nn.Module, precision: bundle_pb2.Precision.ValueType, before: int) -> int:
    """By how much rounding makes weights of `before` bytes smaller, where no product needs more bits than meant."""
    of_products, of_tables = _ROUNDED_BYTES[precision]
    saved = {
        id(parameter): parameter.numel() * (before - (of_tables if isinstance(module, TiedEmbedding) else of_products))
        for module in model.modules()
        if isinstance(module, TiedEmbedding) or (isinstance(module, nn.Linear) and module.out_features >= MIN_COLUMNS)
        for name, parameter in module.named_parameters(recurse=False)
        if name == "weight"
    }
    return int(sum(saved.values()))
