"""How far ONNX Runtime is from torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from weft_export.errors import ParityError


@dataclass
class Gauge:
    """The largest difference so far, and the limit that none may pass: absolute, or relative to a value beyond 1.

    Logits of a trained model reach some tens, where float32 itself is that much coarser.
    """

    tolerance: float
    worst: float = 0.0

    def compare(self, what: str, expected: Tensor, actual: NDArray[Any]) -> None:
        """Raise ParityError unless actual is within tolerance of expected everywhere."""
        if expected.shape != actual.shape:
            raise ParityError(f"{what} has shape {list(actual.shape)} in ONNX Runtime, {list(expected.shape)} in torch")
        wanted = expected.float().numpy()
        errors = np.abs(wanted - actual.astype(np.float32))
        error = float(errors.max(initial=0.0))
        scaled = float((errors / np.maximum(np.abs(wanted), 1)).max(initial=0.0))
        if not scaled <= self.tolerance:  # said this way round, NaN fails
            limit = f"allowed is {self.tolerance:g}"
            raise ParityError(f"{what} differs by {error:.2g} between torch and ONNX Runtime; {limit}")
        self.worst = max(self.worst, error)
