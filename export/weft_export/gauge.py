"""How far ONNX Runtime is from torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from weft_export.errors import ParityError


@dataclass
class Gauge:
    """The largest difference so far, and the limit that none may pass."""

    tolerance: float
    worst: float = 0.0

    def compare(self, what: str, expected: Tensor, actual: NDArray[Any]) -> None:
        """Raise ParityError unless actual is within tolerance of expected everywhere."""
        if expected.shape != actual.shape:
            raise ParityError(f"{what} has shape {list(actual.shape)} in ONNX Runtime, {list(expected.shape)} in torch")
        error = float(np.abs(expected.float().numpy() - actual.astype(np.float32)).max(initial=0.0))
        if not error <= self.tolerance:  # said this way round, NaN fails
            limit = f"allowed is {self.tolerance:g}"
            raise ParityError(f"{what} differs by {error:.2g} between torch and ONNX Runtime; {limit}")
        self.worst = max(self.worst, error)
