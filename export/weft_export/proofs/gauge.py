"""How far ONNX Runtime is from torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft_export.errors import ParityError
from weft_proto.v1 import bundle_pb2

BY_SPREAD = {bundle_pb2.PRECISION_BF16, bundle_pb2.PRECISION_INT8}
"""Where errors are shares of the spread of what is right: see SpreadGauge."""
PEAK = 10
"""Where a root mean square is held to the tolerance, a single value may differ by this many times as much."""
# In a narrower spread, float32's own rounding would be a share that counts.
_LEAST_SPREAD = 1e-3
# A row that is nearer to uniform than this counts as this far from it.
_LEAST_DISTANCE = 1e-2


@dataclass
class Gauge:
    """The largest difference so far, and the limit that none may pass."""

    tolerance: float
    worst: float = 0.0
    unit: str = ""

    def compare(self, what: str, expected: Tensor, actual: NDArray[Any]) -> None:
        """Raise ParityError unless actual is within tolerance of expected everywhere."""
        if expected.shape != actual.shape:
            raise ParityError(f"{what} has shape {list(actual.shape)} in ONNX Runtime, {list(expected.shape)} in torch")
        error = self._error(expected.float().numpy(), actual.astype(np.float32))
        if not error <= self.tolerance:  # said this way round, NaN fails
            limit = f"allowed is {self.tolerance:g}"
            raise ParityError(f"{what} differs by {error:.2g}{self.unit} between torch and ONNX Runtime; {limit}")
        self.worst = max(self.worst, error)

    def near_tie(self, logits: Tensor) -> Tensor:
        """Return how far below the best of logits [..., vocab] a token may lie that rounding may swap with it."""
        return torch.full(logits.shape[:-1], 2 * self.tolerance)

    def _error(self, expected: NDArray[Any], actual: NDArray[Any]) -> float:
        return float(np.abs(expected - actual).max(initial=0.0))


@dataclass
class SpreadGauge(Gauge):
    """Differences as shares of the spread: the standard deviation of what is expected.

    The error is the root mean square of the differences, or 1/PEAK of the largest one if that is more. A model's scale
    then does not matter: a wrong product costs about the spread itself, in a small model and in a large one.
    """

    unit: str = " of its spread"

    def near_tie(self, logits: Tensor) -> Tensor:
        """Return as Gauge does. A single logit may well be off by twice the root mean square."""
        return 4 * self.tolerance * logits.float().std(dim=-1, correction=0)

    def _error(self, expected: NDArray[Any], actual: NDArray[Any]) -> float:
        if not expected.size:
            return 0.0
        difference = np.abs(expected - actual).astype(np.float64)
        spread = max(float(expected.std(dtype=np.float64)), _LEAST_SPREAD)
        return max(float(np.sqrt(np.square(difference).mean())), float(difference.max()) / PEAK) / spread


@dataclass
class AttentionGauge(Gauge):
    """Differences of rows that sum to 1, as a share of how far the furthest row is from a uniform one.

    A row's difference is half the sum of its values' differences. Single weights would not do. For example, over many
    patches each weight is small, and a uniform row would hardly differ from it.
    """

    unit: str = " of what uniform rows would"

    def _error(self, expected: NDArray[Any], actual: NDArray[Any]) -> float:
        if not expected.size:
            return 0.0
        uniform = np.full_like(expected, 1 / expected.shape[-1])
        return _distance(expected, actual) / max(_distance(expected, uniform), _LEAST_DISTANCE)


def _distance(rows: NDArray[Any], others: NDArray[Any]) -> float:
    """Return the largest total variation distance of two rows."""
    return float(np.abs(rows - others).sum(axis=-1).max()) / 2
