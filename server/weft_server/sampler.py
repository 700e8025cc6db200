"""Picks each row's next token from the decoder's candidates, exactly, and independently of the batch.

Greedy rows take the first candidate. Sampled rows draw by inverse CDF over tokens sorted by probability, with a
uniform number that depends on (seed, step) alone. The K candidates usually decide the draw: the probability of all
tokens beyond them is known within bounds, and when both bounds lead to the same token that token is right. Otherwise
the row's full logits are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Doubles = NDArray[np.float64]
    Ints = NDArray[np.int64]

# Relative error allowed to float32 logsumexp; a draw that falls inside it is settled by the full row.
_LOGSUMEXP_ERROR = 1e-5


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a decoder run says of each row's next token, n rows: the K best, the normaliser, and everything."""

    topk_logits: Floats  # [n, k], descending
    topk_ids: Ints  # [n, k]
    logsumexp: Floats  # [n]
    logits: Floats  # [n, vocab], read only for rows that need it


@dataclass(frozen=True, slots=True)
class Settings:
    """How each row wants its next token, n rows."""

    temperature: Doubles  # [n], 0 for greedy
    top_k: Ints  # [n], 0 for all
    top_p: Doubles  # [n]
    seed: NDArray[np.uint64]  # [n]
    step: Ints  # [n], tokens produced so far
    min_new: Ints  # [n], while step < min_new no end token may come


def sample(candidates: Candidates, settings: Settings, end_ids: Ints) -> tuple[Ints, Floats]:
    """Next token ids [n] and their log-probabilities [n] under the model at temperature 1."""
    ids = candidates.topk_ids[:, 0].copy()
    chosen = candidates.topk_logits[:, 0].copy()
    banned = settings.step < settings.min_new
    sampled = (settings.temperature > 0) & ~banned
    if sampled.any():
        rows = np.flatnonzero(sampled)
        picks = _draw(candidates, settings, rows)
        decided = picks >= 0
        at = rows[decided]
        ids[at] = candidates.topk_ids[at, picks[decided]]
        chosen[at] = candidates.topk_logits[at, picks[decided]]
        undecided = rows[~decided]
    else:
        undecided = np.empty(0, np.int64)
    for row in (*undecided.tolist(), *np.flatnonzero(banned).tolist()):
        ids[row] = _full_row(candidates.logits[row], settings, row, end_ids if banned[row] else end_ids[:0])
        chosen[row] = candidates.logits[row, ids[row]]
    return ids, chosen - candidates.logsumexp


def _draw(candidates: Candidates, settings: Settings, rows: Ints) -> Ints:
    """Index of the drawn candidate for each of `rows`, or -1 where the candidates do not decide."""
    logits = candidates.topk_logits[rows].astype(np.float64)
    gap = logits - logits[:, :1]
    num_candidates, vocab = gap.shape[1], candidates.logits.shape[1]
    temperature, top_p = settings.temperature[rows], settings.top_p[rows]
    top_k = np.where((settings.top_k[rows] == 0) | (settings.top_k[rows] > vocab), vocab, settings.top_k[rows])
    weights = np.exp(gap / temperature[:, None])
    weights[np.arange(num_candidates) >= top_k[:, None]] = 0
    cumulative = np.cumsum(weights, axis=1)
    low, high = _tail_bounds(gap, candidates.logsumexp[rows] - logits[:, 0], temperature, top_k, vocab)
    totals = cumulative[:, -1] + np.stack([low, high])  # [2, rows]
    u = uniform(settings.seed[rows], settings.step[rows])

    # A nucleus: its size must not depend on where in the bounds the total lies; its mass is then known.
    last = np.stack([(cumulative < (top_p * total)[:, None]).sum(axis=1) for total in totals])
    nucleus = top_p < 1
    mass = np.take_along_axis(cumulative, np.minimum(last[:1].T, num_candidates - 1), axis=1)[:, 0]
    targets = u * np.where(nucleus, mass, totals)
    picks = np.stack([(cumulative <= target[:, None]).sum(axis=1) for target in targets])
    decided = (picks[0] == picks[1]) & (picks[0] < num_candidates)
    decided &= ~nucleus | ((last[0] == last[1]) & (last[0] < num_candidates))
    return np.where(decided, picks[0], -1)


def _tail_bounds(
    gap: Doubles, log_total: Doubles, temperature: Doubles, top_k: Ints, vocab: int
) -> tuple[Doubles, Doubles]:
    """Bounds on the weight exp(gap / temperature) summed over the tokens beyond the candidates that top_k keeps.

    Each such token lies below the last candidate, so it weighs at most what that one does. And for a temperature up to
    1 its share relative to the last candidate only shrinks: the tail at temperature 1, known from logsumexp, bounds it.
    """
    num_beyond = np.maximum(top_k - gap.shape[1], 0)
    last = gap[:, -1]
    high = num_beyond * np.exp(last / temperature)
    total = np.exp(log_total.astype(np.float64))
    error = _LOGSUMEXP_ERROR * total
    tail = np.maximum(total - np.exp(gap).sum(axis=1), 0)
    cool = temperature <= 1
    scale = np.where(cool, np.exp(last / np.where(cool, temperature, 1.0) - last), np.inf)
    high = np.minimum(high, (tail + error) * scale)
    whole = (temperature == 1) & (top_k == vocab)
    low = np.where(whole, np.maximum(tail - error, 0), 0.0)
    return np.minimum(low, high), high


def _full_row(logits: Floats, settings: Settings, row: int, banned_ids: Ints) -> int:
    """Draw from all logits [vocab] of one row, `banned_ids` taken out first."""
    scaled = logits.astype(np.float64)
    scaled[banned_ids] = -np.inf
    temperature = float(settings.temperature[row])
    if temperature == 0:
        return int(np.argmax(scaled))
    order = np.argsort(-scaled, kind="stable")
    weights = np.exp((scaled[order] - scaled[order[0]]) / temperature)
    top_k = int(settings.top_k[row])
    if top_k:
        weights = weights[:top_k]
    cumulative = np.cumsum(weights)
    top_p = float(settings.top_p[row])
    last = int((cumulative < top_p * cumulative[-1]).sum()) if top_p < 1 else len(weights) - 1
    u = float(uniform(settings.seed[row : row + 1], settings.step[row : row + 1])[0])
    return int(order[int((cumulative[: last + 1] <= u * cumulative[last]).sum())])


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
