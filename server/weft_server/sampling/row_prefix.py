"""The best tokens of one row, as deep as its draw looks, where the decoder's candidates do not decide.

Of a flat row the nucleus may hold thousands of tokens, and a tail of tens of thousands weighs little. So the tail is
not sorted, and each of its tokens not weighed: its sum is enough. As everywhere here, two bounds of the sum have to
lead to the same token. Otherwise `order` looks at all tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.sampling.truncation import draw

if TYPE_CHECKING:
    from weft_server.logits_processors.arrays import Doubles, Floats, Ints
    from weft_server.sampling.truncation import Truncation


# More tokens than this part of a row are no shorter way than the row.
_MOST_OF_ROW = 8
# How far below the last candidate is looked first, in units of the temperature. Then by twice as much, and so on, until
# that is too deep.
_FIRST_STEP = 1.5
# Nothing weighs anything there. A row of which all but a few tokens are ruled out has no more.
_DEEPEST = 80.0
# Relative error of a sum of float32 exponentials, added in float64. Gaps are rounded three times, by 2**-24 each. What
# a rounded gap changes is its share times its size, and the mean size is below log(vocab) = 13: 2.4e-6. An exponential
# has 4 units in the last place: 5e-7. A token of a flat row weighs little more: a larger error leaves draws open.
_SUM_ERROR = 4e-6


class Cuts(NamedTuple):
    """What one row asks for."""

    temperature: float
    top_k: int  # 0 for all
    top_p: float
    min_p: float
    late: Truncation


class Bounds(NamedTuple):
    """Between what the weights of all tokens of a row sum up. The best weighs 1."""

    low: float
    high: float

    @classmethod
    def around(cls, total: float, error: float) -> Bounds:
        """The bounds of a sum with a relative error."""
        return cls(total * (1 - error), total * (1 + error))


def draw_of_best(logits: Floats, cuts: Cuts, u: float, last_gap: float, known: Bounds | None) -> int | None:
    """Draw from all logits [vocab] of a row by the uniform number `u`. None: its best tokens do not decide.

    The last candidate lies `last_gap` below the best. `known` are bounds of the sum at the row's temperature, if it has
    any yet.
    """
    has_end = cuts.top_k or cuts.top_p < 1 or cuts.min_p > 0
    if cuts.top_k > len(logits) // _MOST_OF_ROW or not (has_end or cuts.late.cuts_nothing):
        return None
    peak = logits.max()
    token = _look(logits, peak, cuts, u, last_gap, known) if known else None
    return _look(logits, peak, cuts, u, last_gap, _sum(logits, peak, cuts.temperature)) if token is None else token


def _look(logits: Floats, peak: np.float32, cuts: Cuts, u: float, depth: float, bounds: Bounds) -> int | None:
    """Look deeper until both bounds lead to the same token. None: they lead to two, or it lies too deep."""
    step = _FIRST_STEP * cuts.temperature
    least, growth = step / 8, 2
    while step > least and depth < _DEEPEST * cuts.temperature:
        ids = np.flatnonzero(logits > peak - np.float32(depth + step))
        if len(ids) > len(logits) // _MOST_OF_ROW:
            step, growth = step / 2, 1
            continue
        depth += step
        step *= growth
        best = _Best.of(logits, ids, peak, cuts.temperature)
        low, high = (best.drawn(total, cuts, u) for total in bounds)
        if low is not None and high is not None:
            return int(best.ids[low[0]]) if low == high else None
    return None


def _sum(logits: Floats, peak: np.float32, temperature: float) -> Bounds:
    """Return between what all weights of a row sum up."""
    gaps = logits - peak
    if temperature != 1:
        gaps *= np.float32(1 / temperature)
    return Bounds.around(float(np.exp(gaps, out=gaps).sum(dtype=np.float64)), _SUM_ERROR)


class _Best(NamedTuple):
    """The best tokens of a row, the lower id first where logits are equal. All others weigh less than the last."""

    ids: Ints  # [m]
    weights: Doubles  # [m]
    reached: Doubles  # [m], what all up to each weigh

    @classmethod
    def of(cls, logits: Floats, ids: Ints, peak: np.float32, temperature: float) -> _Best:
        # `ids` rise, so one sort of whole numbers ranks by logit and then by id. Read as a whole number a float32 rises
        # with its value, and falls if it is below 0. Adding 0 makes one zero of two.
        bits = (logits[ids] + np.float32(0)).view(np.int32)
        rising = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)
        ids = ids[np.sort((-rising << 32) | np.arange(len(ids))) & 0xFFFFFFFF]
        weights = logits[ids].astype(np.float64)
        weights -= np.float64(peak)
        if temperature != 1:
            weights /= temperature
        np.exp(weights, out=weights)
        return cls(ids, weights, np.cumsum(weights))

    def drawn(self, total: float, cuts: Cuts, u: float) -> tuple[int, int] | None:
        """Return the place of the drawn token if all weigh `total`. None: it may lie behind these, or be cut there.

        Behind it is how many tokens the late cuts looked at: one more may change what they leave.
        """
        num = len(self.ids)
        end: int | None = None
        if cuts.top_k > num:
            return None
        if cuts.top_k:
            end, total = cuts.top_k, float(self.reached[cuts.top_k - 1])
        if cuts.top_p < 1:
            nucleus = int(np.searchsorted(self.reached, cuts.top_p * total)) + 1
            if nucleus > num:
                return None
            end = nucleus if end is None else min(end, nucleus)
        if cuts.min_p > 0:
            enough = int(np.count_nonzero(self.weights >= cuts.min_p))
            if enough == num and end is None:
                return None
            end = enough if end is None else min(end, enough)
        if not cuts.late.cuts_nothing:
            return None if end is None else (draw(self.weights[:end], cuts.late, u), end)
        mass = total if end is None else float(self.reached[end - 1])
        place = int(np.searchsorted(self.reached, u * mass, side="right"))
        if end is not None:
            return min(place, end - 1), 0
        return (place, 0) if place < num else None
