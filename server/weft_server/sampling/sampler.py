"""Picks each row's next token from the decoder's candidates, exactly, and independently of the batch.

Greedy rows take the first candidate. Sampled rows draw by inverse CDF over tokens sorted by probability. Their uniform
number depends on (seed, step) alone.

The K candidates usually decide the draw. The probability of all tokens beyond them is known within bounds. If both
bounds lead to the same token, that token is right. Otherwise more of the row's best tokens are asked: see `row_prefix`.
Where these do not decide either, the full row is sorted where it matters: see `order`. Cuts by entropy are made where
it is certain which tokens the cuts before leave: see `truncation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_server.sampling.order import Order
from weft_server.sampling.row_prefix import Bounds, Cuts, draw_of_best
from weft_server.sampling.truncation import Truncation, draw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft_server.logits_processors.arrays import Bools, Doubles, Floats, Ints
    from weft_server.sampling.candidates import Candidates, Count
    from weft_server.sampling.order import OrderPlace


# Relative error allowed to a sum that a graph says. A draw that falls inside it is settled by the full row.
_SUM_ERROR = 1e-4
# That of its logarithm beside that: it is a float32, and the difference of two.
_LOG_ERROR = float(np.finfo(np.float32).eps)
# No sum of weights has a larger logarithm where the best weighs 1. One that seems larger tells nothing.
_MOST_LOG = 80.0


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a sequence draws tokens, every default filled in. `top_k` 0 means all tokens."""

    temperature: float
    top_k: int
    top_p: float
    seed: int
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    eta_cutoff: float = 0.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The same of n rows, which may be greedy, and how far each row is."""

    temperature: Doubles  # [n], 0 for greedy
    top_k: Ints  # [n], 0 for all
    top_p: Doubles  # [n]
    seed: NDArray[np.uint64]  # [n]
    step: Ints  # [n], tokens produced so far
    min_new: Ints  # [n], while step < min_new no end token may come
    min_p: Doubles  # [n], 0 for all
    typical_p: Doubles  # [n], 1 for all
    epsilon_cutoff: Doubles  # [n], 0 for all
    eta_cutoff: Doubles  # [n], 0 for all

    @classmethod
    def zeros(cls, step: Ints, min_new: Ints) -> Settings:
        """Return columns for as many rows, of which each is to be set."""
        kinds: dict[str, Any] = {"top_k": np.int64, "seed": np.uint64}
        own: dict[str, Any] = {name: np.zeros(len(step), kinds.get(name, np.float64)) for name in cls.__slots__}
        return cls(**own | {"step": step, "min_new": min_new})

    def rows(self, start: int, stop: int) -> Settings:
        """Return rows [start, stop), as views."""
        return Settings(*(getattr(self, name)[start:stop] for name in self.__slots__))

    def divisors(self, rows: slice | Ints) -> Floats:
        """Return what the logits of some rows are divided by before they are weighed: 1 for greedy."""
        temperature = self.temperature[rows]
        return np.where(temperature > 0, temperature, 1).astype(np.float32)

    @property
    def is_late(self) -> Bools:
        """Which rows have cuts that look at what all others have left, [n]."""
        return (self.typical_p < 1) | (self.epsilon_cutoff > 0) | (self.eta_cutoff > 0)

    @property
    def has_epsilon_alone(self) -> Bools:
        """Which rows have no other cut than epsilon, but for top_k, [n]."""
        others = (self.top_p < 1) | (self.min_p > 0) | (self.typical_p < 1) | (self.eta_cutoff > 0)
        return (self.epsilon_cutoff > 0) & ~others

    def cuts(self, row: int) -> Truncation:
        """Return the late cuts of a row."""
        return Truncation(float(self.typical_p[row]), float(self.epsilon_cutoff[row]), float(self.eta_cutoff[row]))


def sample(
    candidates: Candidates, settings: Settings, end_ids: Ints, count: Count | None = None
) -> tuple[Ints, Floats]:
    """Return next token ids [n] and their log-probabilities [n]. Rows that are read whole are counted.

    Log-probabilities are under the model at temperature 1. Without a normaliser they are NaN.
    """
    barred = settings.step < settings.min_new
    is_barred = np.count_nonzero(barred) > 0
    sampled = settings.temperature.nonzero()[0]
    if not len(sampled) and candidates.ranked is None:
        ids = candidates.topk_ids[:, 0].copy()
        if not is_barred or not np.count_nonzero(barred[:, None] & (ids[:, None] == end_ids)):
            return ids, candidates.topk_logits[:, 0] - candidates.logsumexp

    every_row = np.arange(len(candidates.topk_ids))
    allowed = candidates.ranked
    if is_barred:
        free = ~(barred[:, None] & (candidates.topk_ids[:, :, None] == end_ids).any(axis=2))
        allowed = free if allowed is None else free & allowed
    if allowed is not None:
        picks = allowed.argmax(axis=1)
        picks[~allowed.any(axis=1)] = -1
    else:
        picks = np.zeros_like(every_row)

    if len(sampled):
        picks[sampled] = _draw(candidates, settings, sampled, allowed)

    ids = candidates.topk_ids[every_row, picks]
    chosen = candidates.topk_logits[every_row, picks]
    undecided = np.flatnonzero(picks < 0).tolist()
    uniforms = uniform(settings.seed, settings.step) if undecided else ()
    for row in undecided:
        logits = candidates.logits[row]
        banned = end_ids if barred[row] else end_ids[:0]
        token = _of_row_prefix(logits, candidates, settings, row, uniforms[row]) if not len(banned) else None
        if token is None:
            if count:
                count("draw" if settings.temperature[row] else "min_new_tokens")
            token = _full_row(logits, settings, row, banned, uniforms[row])
        ids[row] = token
        chosen[row] = logits[token]
    return ids, chosen - candidates.logsumexp


def _draw(candidates: Candidates, settings: Settings, rows: Ints, allowed: Bools | None) -> Ints:
    """Return the index of the drawn candidate for each of `rows`, or -1 where the candidates do not decide.

    `allowed` [n, k] is False for candidates that must not come. None allows all.
    """
    logits = candidates.topk_logits[rows].astype(np.float64)
    num_candidates = logits.shape[1]
    vocab = candidates.logits.shape[1]
    temperature = settings.temperature[rows]
    top_p = settings.top_p[rows]
    top_k = np.where((settings.top_k[rows] == 0) | (settings.top_k[rows] > vocab), vocab, settings.top_k[rows])

    gap = logits - logits[:, :1]
    weights = np.exp(gap / temperature[:, None])
    # What they weigh before some are ruled out, where it is asked for.
    listed_weights = np.zeros(0)
    if candidates.total_weights is not None:
        listed_weights = (weights if candidates.ranked is None else weights * candidates.ranked[rows]).sum(axis=1)
    counts = np.arange(1, num_candidates + 1)

    if allowed is not None:
        weights *= allowed[rows]
        counts = np.cumsum(allowed[rows], axis=1)
    if np.count_nonzero(top_k < num_candidates):
        weights[counts > top_k[:, None]] = 0
    cumulative = np.cumsum(weights, axis=1)

    num_beyond = np.maximum(top_k - counts[..., -1], 0)
    listed = np.exp(gap)
    if candidates.ranked is not None:
        listed *= candidates.ranked[rows]
    logsumexp = candidates.logsumexp[rows].astype(np.float64)
    low, high = _tail_bounds(gap[:, -1], listed.sum(axis=1), logsumexp, logits[:, 0], temperature, num_beyond)
    if candidates.total_weights is not None:
        low, high = _narrowed(low, high, candidates.total_weights[rows], listed_weights)
    # A token that must not come may lie beyond the candidates, and top_k cuts there. Then only the upper bound holds.
    low[(top_k < vocab) | (settings.step[rows] < settings.min_new[rows])] = 0
    if candidates.loose is not None:
        low[candidates.loose[rows]] = 0
    totals = cumulative[:, -1] + np.array((low, high))  # [2, rows]
    u = uniform(settings.seed[rows], settings.step[rows])

    # A nucleus. Its size may depend on where in the bounds the total lies, if the token that is drawn does not.
    last = _num_below(cumulative, top_p * totals, np.less)
    late = settings.is_late[rows]
    cut = (top_p < 1) | late
    bound = np.where(num_beyond > 0, np.exp(gap[:, -1] / temperature), 0)
    has_others = late | (settings.min_p[rows] > 0)
    if np.count_nonzero(has_others):
        cut |= has_others
        last = np.minimum(last, _last_kept(settings, rows, weights, totals, bound, top_k >= vocab))
    mass = cumulative[np.arange(len(rows)), np.minimum(last, num_candidates - 1)]
    # Where it ends beyond the candidates, it weighs at most one of those tokens more than it has to.
    ends_beyond = last == num_candidates
    if np.count_nonzero(ends_beyond):
        mass = np.where(ends_beyond, top_p * totals + np.array((np.zeros_like(bound), bound)), mass)
    picks = _num_below(cumulative, u * np.where(cut, mass, totals), np.less_equal)
    decided = (picks[0] == picks[1]) & (picks[0] < num_candidates)
    decided &= ~has_others | ~(ends_beyond[0] | ends_beyond[1])
    decided &= ~late | (last[0] == last[1])
    for row in (late & decided).nonzero()[0].tolist():
        kept = np.flatnonzero(weights[row, : last[0, row] + 1])
        picks[0, row] = kept[draw(weights[row, kept], settings.cuts(rows[row]), u[row])]
    return np.where(decided, picks[0], -1)


def _num_below(cumulative: Doubles, bounds: Doubles, is_below: np.ufunc) -> Ints:
    """Return how many of each row's numbers [rows, k] are below each of its two bounds [2, rows]: [2, rows]."""
    below: Ints = np.add.reduce(is_below(cumulative, bounds[:, :, None]), axis=2, dtype=np.int64)
    return below


def _last_kept(
    settings: Settings, rows: Ints, weights: Doubles, totals: Doubles, bound: Doubles, has_all: Bools
) -> Ints:
    """Return the last candidate that min_p, and epsilon alone, leave [2, rows], or K if it may be none of them.

    There is one for each of the two `totals` between which the sum of all weights lies. Tokens beyond the candidates
    weigh at most `bound`. Rows that have all have no top_k.
    """
    min_p = settings.min_p[rows]
    last = _last_of(weights, np.where(min_p > 0, min_p * weights.max(axis=1), np.nan), bound)
    # Where nothing else cuts, the bounds of the sum may be enough.
    alone = settings.has_epsilon_alone[rows] & has_all
    epsilon = np.where(alone, settings.epsilon_cutoff[rows], np.nan)
    return np.minimum(last, np.stack([_last_of(weights, epsilon * total, bound) for total in totals]))


def _last_of(weights: Doubles, floor: Doubles, bound: Doubles) -> Ints:
    """Return the last candidate [rows] that weighs at least `floor`, or K if that may be none of them.

    Tokens beyond the candidates weigh at most `bound`. A floor of NaN is none.
    """
    num_candidates = weights.shape[1]
    enough = weights >= floor[:, None]
    last: Ints = num_candidates - 1 - enough[:, ::-1].argmax(axis=1)
    last[~enough.any(axis=1) | (bound >= floor)] = num_candidates
    return last


def _tail_bounds(
    last_gap: Doubles, listed: Doubles, logsumexp: Doubles, best: Doubles, temperature: Doubles, num_beyond: Ints
) -> tuple[Doubles, Doubles]:
    """Bounds on the weight exp(gap / temperature) summed over `num_beyond` tokens beyond the candidates.

    The gap is that to the best logit. `last_gap` is that of the last candidate, and `listed` is what all candidates
    weigh at temperature 1. `best` are the best logits.

    Three facts give the bounds:

    1. Each such token lies below the last candidate, so it weighs at most as much.
    2. For a temperature up to 1, its share relative to the last candidate only shrinks. So the tail at temperature 1,
       which is known from logsumexp, bounds it.
    3. At temperature 1 that tail is the weight itself, give or take the error of logsumexp.
    """
    # A logit of -inf is a token that the graph itself rules out, and so are all below it. Their weight is 0, not 0 / 0.
    last = np.maximum(last_gap, -1e30)
    total = np.exp(np.minimum(logsumexp - best, _MOST_LOG))
    error = _error_of(logsumexp) * total
    tail = np.maximum(total - listed, 0)
    cool = temperature <= 1
    scale = np.where(cool, np.exp(last / np.where(cool, temperature, 1.0) - last), np.inf)
    high = np.minimum(num_beyond * np.exp(last / temperature), (tail + error) * scale)
    low = np.where(temperature == 1, np.maximum(tail - error, 0), 0.0)
    return np.minimum(low, high), high


def _error_of(logsumexp: Doubles) -> Doubles:
    """Return the relative error of the sums whose logarithms these are: the larger, the less a float32 knows of it."""
    return _SUM_ERROR + np.expm1(np.minimum(_LOG_ERROR * np.abs(logsumexp), _MOST_LOG))


def _narrowed(low: Doubles, high: Doubles, totals: Floats, listed: Doubles) -> tuple[Doubles, Doubles]:
    """Return bounds of what the tokens beyond the candidates weigh, where it is known what all of them weigh [rows].

    `listed` is what the candidates weigh. NaN changes nothing.
    """
    known = totals.astype(np.float64)
    error = _SUM_ERROR * known
    tail = np.maximum(known - listed, 0)
    high = np.fmin(high, tail + error)
    return np.minimum(np.fmax(low, tail - error), high), high


def _of_row_prefix(logits: Floats, candidates: Candidates, settings: Settings, row: int, u: float) -> int | None:
    """Draw from all logits [vocab] of one row by `u`, as deep as is needed. None: that does not decide."""
    if settings.temperature[row] == 0:
        return None
    temperature = float(settings.temperature[row])
    best = candidates.topk_logits[row]
    known = None
    if temperature == 1 and (candidates.loose is None or not candidates.loose[row]):
        logsumexp = candidates.logsumexp[row].astype(np.float64)
        total = np.exp(np.minimum(logsumexp - best[0], _MOST_LOG))
        known = Bounds.around(float(total), float(_error_of(logsumexp)))
    elif candidates.total_weights is not None and np.isfinite(candidates.total_weights[row]):
        known = Bounds.around(float(candidates.total_weights[row]), _SUM_ERROR)
    cuts = Cuts(
        temperature,
        top_k if (top_k := int(settings.top_k[row])) < len(logits) else 0,
        float(settings.top_p[row]),
        float(settings.min_p[row]),
        settings.cuts(row),
    )
    return draw_of_best(logits, cuts, u, float(best[0] - best[-1]), known)


def _full_row(logits: Floats, settings: Settings, row: int, banned_ids: Ints, u: float) -> int:
    """Draw from all logits [vocab] of one row by the uniform number `u`, `banned_ids` taken out first."""
    if len(banned_ids):
        logits = logits.copy()
        logits[banned_ids] = -np.inf
    if settings.temperature[row] == 0:
        return int(np.argmax(logits))
    order = Order(logits, float(settings.temperature[row]))
    end = _end(order, settings, row, len(logits))
    cuts = settings.cuts(row)
    if cuts.cuts_nothing:
        return order.beyond(u * (order.mass(end) if end else order.total), end)
    kept = np.sort(order.weights)[::-1][: order.count(end) if end else None]
    return order.token(order.number(1 + draw(kept, cuts, u)))


def _end(order: Order, settings: Settings, row: int, vocab: int) -> OrderPlace | None:
    """Return the place of the last token that top_k, top_p and min_p leave. None: they leave all."""
    ends = []
    total = order.total
    if 0 < settings.top_k[row] < vocab:
        ends.append(order.number(int(settings.top_k[row])))
        total = order.mass(ends[0])
    if settings.top_p[row] < 1:
        ends.append(order.reaching(float(settings.top_p[row]) * total))
    if settings.min_p[row] > 0:
        ends.append(order.number(int(np.count_nonzero(order.weights >= settings.min_p[row]))))
    return min(ends, default=None)


def uniform(seed: NDArray[np.uint64], step: Ints) -> Doubles:
    """Uniform numbers in [0, 1) from counters: SplitMix64's finaliser (Steele et al. 2014) over seed, then step."""
    gamma = np.uint64(0x9E3779B97F4A7C15)
    stream = _mix(seed + gamma)
    bits = _mix(stream + (step.astype(np.uint64) + np.uint64(1)) * gamma) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
