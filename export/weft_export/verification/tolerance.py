"""How far ONNX Runtime is from torch, and all figures of that, for who looks into a proof that failed."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft_export.errors import ParityError
from weft_export.layers.embeddings import BANNED


@dataclass
class Figures:
    """By what was compared: the largest error so far, and what is allowed of it."""

    rows: dict[str, tuple[float, str]] = field(default_factory=dict)

    def note(self, what: str, error: float, allowed: str) -> None:
        """Keep an error, unless a larger one of the same is known. NaN is the largest."""
        known, _ = self.rows.get(what, (0.0, ""))
        if not (error <= known or math.isnan(known)):
            self.rows[what] = (error, allowed)

    def write(self, path: Path) -> None:
        """Write a line for each, in the order in which they were compared. The last one failed, if one did."""
        lines = [f"{what}: {error:.3g}, allowed {allowed}\n" for what, (error, allowed) in self.rows.items()]
        path.write_text("".join(lines), encoding="utf-8")


PEAK = 10
"""Where a root mean square is held to the tolerance, a single value may differ by this many times as much."""
# In a narrower spread, float32's own rounding would be a share that counts.
_LEAST_SPREAD = 1e-3
# What is smaller is the difference of larger numbers, whose rounding it keeps.
_LEAST_SIZE = 1e-1
# How many standard deviations one rounded number may be off.
_DEVIATIONS = 4
# A row that is nearer to uniform than this counts as this far from it.
_LEAST_DISTANCE = 1e-2


def allowed(logits: Tensor) -> Tensor:
    """Return the logits [count] of tokens that are not banned.

    A ban is -10,000. It would be nearly all of the size, or of the spread, and hide what the other logits differ by.
    """
    return logits[logits >= BANNED / 2]


def both_allowed(what: str, expected: Tensor, actual: NDArray[Any]) -> tuple[Tensor, NDArray[Any]]:
    """Return the logits [count] of tokens that are not banned, of both. Raises ParityError if others are banned."""
    if expected.shape != actual.shape:  # it is told where they are compared
        return expected, actual
    # One row's normaliser is a number, and no array.
    right, other = np.atleast_1d(expected.detach().numpy()), np.atleast_1d(actual)
    free = ~(right < BANNED / 2)
    if not np.array_equal(free, ~(other < BANNED / 2)):
        raise ParityError(f"{what}: ONNX Runtime bans other tokens than torch")
    return torch.from_numpy(right[free]), other[free]


@dataclass
class Tolerance:
    """The largest difference so far, and the limit that none may pass."""

    tolerance: float
    worst: float = 0.0
    unit: str = ""
    figures: Figures = field(default_factory=Figures)

    def compare(self, what: str, expected: Tensor, actual: NDArray[Any], like: Tensor | None = None) -> None:
        """Raise ParityError unless actual is within tolerance of expected everywhere.

        like is what gives the scale, for what was made of larger numbers: by default, expected itself.
        """
        if expected.shape != actual.shape:
            raise ParityError(f"{what} has shape {list(actual.shape)} in ONNX Runtime, {list(expected.shape)} in torch")
        if not expected.numel():
            return
        right = expected.float().numpy()
        scale = self.scale(right if like is None else like.float().numpy())
        error = self._error(right, actual.astype(np.float32)) / scale
        self.figures.note(what, error, f"{self.tolerance:g}{self.unit}")
        if not error <= self.tolerance:  # said this way round, NaN fails
            limit = f"allowed is {self.tolerance:g}"
            raise ParityError(f"{what} differs by {error:.2g}{self.unit} between torch and ONNX Runtime; {limit}")
        self.worst = max(self.worst, error)

    def compare_logits(self, what: str, expected: Tensor, actual: NDArray[Any], like: Tensor | None = None) -> None:
        """Compare logits [...] of one token, or what was made of the logits `like`."""
        self.compare(what, *both_allowed(what, expected, actual), None if like is None else allowed(like))

    def near_tie(self, logits: Tensor) -> Tensor:
        """Return how far below the best of logits [..., vocab] a token may lie that rounding may swap with it."""
        scales = [self.scale(allowed(row).numpy()) for row in logits.detach().float().flatten(0, -2)]
        return 2 * self.tolerance * torch.tensor(scales).view(logits.shape[:-1])

    def scale(self, expected: NDArray[Any]) -> float:  # noqa: ARG002 - of what it is a share
        """Return the difference that is an error of 1, where `expected` is right."""
        return 1.0

    def _error(self, expected: NDArray[Any], actual: NDArray[Any]) -> float:
        return float(np.abs(expected - actual).max())


@dataclass
class SizeTolerance(Tolerance):
    """Differences as shares of the size: the root mean square of what is expected.

    Float32 rounds each number to a share of itself. So a model of large numbers differs by more, and is as right.

    The tolerance is for a single number. Of many, the furthest may be off by more, and their root mean square by less:
    see error_of_many.
    """

    unit: str = " of its size"

    def scale(self, expected: NDArray[Any]) -> float:
        """Return the root mean square of what is expected, and not less than what cancelling leaves."""
        return max(float(np.sqrt(np.square(expected, dtype=np.float64).mean())), _LEAST_SIZE)

    def _error(self, expected: NDArray[Any], actual: NDArray[Any]) -> float:
        difference = np.abs(expected - actual).astype(np.float64)
        return error_of_many(float(np.sqrt(np.square(difference).mean())), float(difference.max()), difference.size)


def error_of_many(root_mean_square: float, largest: float, count: int) -> float:
    """Return the error of one rounded number that is as unlikely as these errors of `count` numbers are.

    One number may be off by 4 deviations.

    - The largest of N may be off by 4 + ln(N) / sqrt(2) deviations. Not all places are rounded alike. So errors have
      the tails of Laplace's distribution, not of the normal one.
    - The root mean square of N may be 1 + 3 / sqrt(N) deviations: 1, and what N draws leave open.

    docs/decisions/parity-by-size.md derives both, and has figures.
    """
    furthest = _DEVIATIONS + math.log(count) / math.sqrt(2)
    usual = 1 + (_DEVIATIONS - 1) / math.sqrt(count)
    return _DEVIATIONS * max(largest / furthest, root_mean_square / usual)


@dataclass
class SpreadTolerance(Tolerance):
    """Differences as shares of the spread: the standard deviation of what is expected.

    The error is the root mean square of the differences, or 1/PEAK of the largest one if that is more. A model's scale
    then does not matter: a wrong product costs about the spread itself, in a small model and in a large one.
    """

    unit: str = " of its spread"

    def compare_logits(self, what: str, expected: Tensor, actual: NDArray[Any], like: Tensor | None = None) -> None:
        """Compare as the base, but for a shift of all logits: no answer knows of it, and rounding moves it most."""
        right, other = both_allowed(what, expected, actual)
        self.compare(what, right - right.mean(), other - other.mean(), None if like is None else allowed(like))

    def near_tie(self, logits: Tensor) -> Tensor:
        """Return as the base. A single logit may well be off by twice the root mean square."""
        return 2 * super().near_tie(logits)

    def scale(self, expected: NDArray[Any]) -> float:
        """Return the standard deviation of what is expected."""
        return max(float(expected.std(dtype=np.float64)), _LEAST_SPREAD)

    def _error(self, expected: NDArray[Any], actual: NDArray[Any]) -> float:
        difference = np.abs(expected - actual).astype(np.float64)
        return max(float(np.sqrt(np.square(difference).mean())), float(difference.max()) / PEAK)


@dataclass
class AttentionTolerance(Tolerance):
    """Differences of rows that sum to 1, as a share of how far the furthest row is from a uniform one.

    A row's difference is half the sum of its values' differences. Single weights would not do. For example, over many
    patches each weight is small, and a uniform row would hardly differ from it.
    """

    unit: str = " of what uniform rows would"

    def scale(self, expected: NDArray[Any]) -> float:
        """Return how far the furthest row is from a uniform one."""
        return max(_distance(expected, np.full_like(expected, 1 / expected.shape[-1])), _LEAST_DISTANCE)

    def _error(self, expected: NDArray[Any], actual: NDArray[Any]) -> float:
        return _distance(expected, actual)


def _distance(rows: NDArray[Any], others: NDArray[Any]) -> float:
    """Return the largest total variation distance of two rows."""
    return float(np.abs(rows - others).sum(axis=-1).max()) / 2
