"""How far ONNX Runtime may be from torch, at each precision, and how often a proof looks."""

import math

from torch import nn

from weft_export.families.writer import Writer
from weft_export.verification.tolerance import SizeTolerance, SpreadTolerance, Tolerance
from weft_proto.bundle_rules import HOST_PRECISIONS, ROUNDED
from weft_proto.v1 import bundle_pb2

# How far logits and states may be from torch. What lies in [0, 1] has bounds of its own, below.
#
# - fp32: a share of the size, at least; see float32_tolerance.
# - fp16: for logits of trained models, which have values of some tens. Also with weights of 4 bits: torch has them too.
# - bf16: a share of the spread, because the error goes with the model's scale. Four trained models were 0.013 to 0.034
#   of it off. No CPU has kernels for bf16. The graph that is run is a stand-in (widening.py).
# - int8: a share of the spread too. The products agree to the last bit, and all between them agrees as at fp32. But a
#   value may lie halfway between two levels. If it differs in its last bit, it is rounded to the other level, which is
#   1/127 of the largest value of its row. How far that carries goes with the model's scale. Two roundings of one large
#   model differ by 0.04 to 0.11 of the spread, and the mildest wrong wiring that was tried by 0.375. Where weights
#   lie in blocks, activations are rounded in blocks too, or not at all, and keys and values as at int8.
TOLERANCE = {
    bundle_pb2.PRECISION_FP32: 1e-4,
    bundle_pb2.PRECISION_FP16: 1e-1,
    bundle_pb2.PRECISION_BF16: 1e-1,
    **dict.fromkeys(ROUNDED, 1.5e-1),
    bundle_pb2.PRECISION_INT4_FP16: 1e-1,
}
# Of probabilities, which lie in [0, 1].
SHARE_TOLERANCE = {
    bundle_pb2.PRECISION_FP32: 1e-4,
    bundle_pb2.PRECISION_FP16: 1e-2,
    bundle_pb2.PRECISION_BF16: 5e-2,
    **dict.fromkeys(ROUNDED, 5e-2),
    bundle_pb2.PRECISION_INT4_FP16: 1e-2,
}
# At int8 and bf16, a deep layer's attention sums up what all layers before it rounded otherwise. In a lively random
# model of twelve layers at int8 the difference is 0.054 in the tenth and 0.12 in the last. In one of two layers at bf16
# it is 0.11 in the last. The states that attention is made of have their own bound.
EXPLAIN_SPREAD_TOLERANCE = 2.5e-1
# A single weight of a lively random Swin differs by 0.013. Its probabilities agree within 0.01.
EXPLAIN_FP16_TOLERANCE = 5e-2

# A vector of length 1 has numbers of some hundredths.
VECTOR_FP16_TOLERANCE = 3e-2

_KINDS = {
    bundle_pb2.PRECISION_FP32: SizeTolerance,
    bundle_pb2.PRECISION_FP16: Tolerance,
    bundle_pb2.PRECISION_BF16: SpreadTolerance,
    **dict.fromkeys(ROUNDED, SpreadTolerance),
    bundle_pb2.PRECISION_INT4_FP16: Tolerance,
}
_HALF = frozenset({bundle_pb2.PRECISION_FP16, bundle_pb2.PRECISION_INT4_FP16})
# Of numbers near 1: half the distance to the next one.
_FLOAT32_ROUNDING = 2.0**-24
# Of the usual error: trained models were up to five times as far off where a value was furthest.
_MARGIN = 8


def float32_tolerance(model: nn.Module) -> float:
    """Return the share of its size by which a float32 value may differ between two orders of summation.

    A sum of n terms is rounded n times, each time by a share u = 2^-24 of what is summed so far. Such errors add up as
    a random walk does: to u sqrt(n / 2) of the sum's size in each of two orders, and to u sqrt(n) between them. A model
    has many products in a row, and their errors add up in the same way. docs/decisions/parity-by-size.md has figures.
    """
    weights = [weight for weight in model.parameters() if weight.dim() > 1]
    num_terms = max((weight.numel() // weight.shape[0] for weight in weights), default=1)
    usual = _FLOAT32_ROUNDING * math.sqrt(num_terms * len(weights))
    return max(TOLERANCE[bundle_pb2.PRECISION_FP32], _MARGIN * usual)


def bounds_of(precision: bundle_pb2.Precision.ValueType, model: nn.Module) -> bundle_pb2.Precision.ValueType:
    """Return the precision whose bounds a model is held to: that of int8 where its keys and values are rounded.

    A key may lie halfway between two levels, as any other number that is rounded.
    """
    rounds = isinstance(model, Writer) and any(state.rounded for state in model.states)
    return bundle_pb2.PRECISION_INT8 if rounds and precision not in HOST_PRECISIONS else precision


def tolerance_of(precision: bundle_pb2.Precision.ValueType, model: nn.Module) -> Tolerance:
    """Return what logits and states of a model are held to."""
    tolerance = float32_tolerance(model) if precision == bundle_pb2.PRECISION_FP32 else TOLERANCE[precision]
    return _KINDS[precision](tolerance)


def share_tolerance_of(precision: bundle_pb2.Precision.ValueType, model: nn.Module) -> Tolerance:
    """Return what probabilities of a model are held to. At most a quarter of a logit's difference comes through."""
    tolerance = SHARE_TOLERANCE[precision]
    return Tolerance(max(tolerance, float32_tolerance(model)) if precision == bundle_pb2.PRECISION_FP32 else tolerance)


def vector_tolerance_of(precision: bundle_pb2.Precision.ValueType, model: nn.Module) -> Tolerance:
    """Return what the vectors of a model are held to: as logits are, but in shares of their size at fp16 too."""
    return SizeTolerance(VECTOR_FP16_TOLERANCE) if precision in _HALF else tolerance_of(precision, model)


def attention_tolerance_of(precision: bundle_pb2.Precision.ValueType, model: nn.Module) -> Tolerance:
    """Return what single weights of a model's attention are held to."""
    if precision == bundle_pb2.PRECISION_FP32:
        return share_tolerance_of(precision, model)
    return Tolerance(EXPLAIN_FP16_TOLERANCE if precision in _HALF else EXPLAIN_SPREAD_TOLERANCE)


# A proof reads so many weights, or runs so often.
_MAX_WEIGHTS_READ = 1 << 34
_FEWEST = 16


def num_passes(model: nn.Module, most: int) -> int:
    """Return how often a proof runs a model: `most`, or fewer, as each run reads all weights.

    It is 16 of a model of a thousand million weights.

    Any model of up to 67 million weights may run 256 times.
    """
    # Rounded weights are buffers.
    num_weights = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    return min(most, max(_FEWEST, _MAX_WEIGHTS_READ // max(1, num_weights)))
