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
"""By this many times the tolerance no single value may differ where a root mean square is held to it."""
# Of a narrower spread float32's own rounding is a share that counts.
_LEAST_SPREAD = 1e-3
# Rows that are nearer to uniform differ by nothing that counts.
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
        """Return how far below the best logit a token may lie that rounding swaps with it; logits [..., vocab]."""
        return torch.full(logits.shape[:-1], 2 * self.tolerance)

    def _error(self, expected: NDArray[Any], actual: NDArray[Any]) -> float:
        return float(np.abs(expected - actual).max(initial=0.0))


@dataclass
class SpreadGauge(Gauge):
    """Differences as shares of the standard deviation of what is expected: their root mean square, or 1/PEAK of one.

    A model's scale then does not matter: a wrong product costs about the spread itself, in a small model and a large.
    """

    unit: str = " of its spread"

    def near_tie(self, logits: Tensor) -> Tensor:
        """Return as Gauge does; a single logit may well be off by twice the root mean square."""
        return 4 * self.tolerance * logits.float().std(dim=-1, correction=0)

    def _error(self, expected: NDArray[Any], actual: NDArray[Any]) -> float:
        if not expected.size:
            return 0.0
        difference = np.abs(expected - actual).astype(np.float64)
        spread = max(float(expected.std(dtype=np.float64)), _LEAST_SPREAD)
        return max(float(np.sqrt(np.square(difference).mean())), float(difference.max()) / PEAK) / spread


@dataclass
class AttentionGauge(Gauge):
    """Rows that sum to 1: half the sum of a row's differences, as a share of how far from uniform the furthest row is.

    A single weight may be small everywhere, as over many patches: then uniform rows would differ from it by little.
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
