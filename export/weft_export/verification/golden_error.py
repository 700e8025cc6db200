"""How far an answer to the golden request is from the one that a manifest has."""

from torch import Tensor, tensor

from weft_proto.bundle_rules import EMBEDDING_TOLERANCE, GOLDEN_TOLERANCE, MAX_DIMENSIONS
from weft_proto.v1 import bundle_pb2


def kept_numbers(vectors: Tensor) -> list[float]:
    """Return a vector, or of vectors [tokens, dimensions] as many of the first as a manifest has room for."""
    width = vectors.shape[-1]
    numbers: list[float] = vectors.flatten()[: MAX_DIMENSIONS // width * width].tolist()
    return numbers


def golden_error(
    golden: bundle_pb2.Golden, actual: Tensor, precision: bundle_pb2.Precision.ValueType
) -> tuple[float, float]:
    """Return how far values are from the golden ones, and how far they may be."""
    if not golden.embedding:
        expected = tensor(golden.scores or golden.probabilities)
        error = (actual - expected).abs() / expected.abs().clamp(min=1)
        return float(error.max()), GOLDEN_TOLERANCE[precision]
    expected = tensor(golden.embedding)
    kept = actual[: len(expected)]
    return float((kept - expected).norm() / expected.norm()), EMBEDDING_TOLERANCE[precision]
