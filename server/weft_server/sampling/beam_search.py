"""Beam search as transformers does it (GenerationMixin._beam_search), as columns over searches of one width.

Sums of log-probabilities are float32. Scores are float64, because a length penalty may take them beyond what a float32
tells apart. Three rules are stated here, because transformers leaves them open:

1. Of equal sums the one of the better beam comes first, then the one whose token its row ranks better: by the higher
   logit, then the lower id. Candidates alone decide this.
2. A search ends as soon as it cannot improve. In a batch of transformers it may go on beside others, and takes nothing.
3. A place that nothing has filled counts minus infinity. In transformers it counts -1e9, so a length penalty that makes
   all scores lower than that leaves its places empty. A search may end with empty places: it has found fewer answers,
   or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from weft_server.logits_processors.arrays import Bools, Doubles, Floats, Ints


# The sum of a beam that has not begun, and what a beam that has ended falls by.
_FAR = np.float32(-1e9)
_EMPTY = -np.inf
# What is told of a lower score: a message holds a float32.
_LOWEST = float(np.finfo(np.float32).min)


def num_kept(width: int, num_end_ids: int) -> int:
    """Return how many candidates a search of `width` beams looks at in a step, so that `width` of them can go on."""
    return max(2, 1 + num_end_ids) * width


def num_decisive(width: int, num_end_ids: int) -> int:
    """Return how many candidates of each row decide a step of a search of `width` beams.

    They are the row's best `width` that go on, and all that end before these. The best `width` of all rows, which alone
    may be answers, are each among the best `width` of their row.
    """
    return width + num_end_ids


def most_beams(num_candidates: int, num_end_ids: int) -> int:
    """Return how many beams a search may have that so many candidates of each row decide."""
    return max(0, num_candidates - num_end_ids)


class Chosen(NamedTuple):
    """What a step makes of n searches of one width.

    A candidate is the beam it comes from, by its rank, and its place among that beam's tokens.
    """

    # The beams that go on, [n, width], best first.
    parents: Ints
    picks: Ints
    # The best candidates, [n, width]. Those that end here may enter the list of found answers.
    best_parents: Ints
    best_picks: Ints
    # The list of found answers, [n, width], best first: the place that each had before, or `width` and more for the
    # best candidates from the first on. Places behind the `num_found` [n] are empty.
    places: Ints
    num_found: Ints
    # Which searches are done, [n].
    done: Bools


class BeamSearches:
    """The states of searches of one width, and with one number of candidates to look at. The last fills a hole."""

    def __init__(self, width: int, kept: int, capacity: int) -> None:
        self.width = width
        self.kept = kept
        self.num = 0
        # The sum of each beam by its rank, and the score of each answer that was found, best first.
        self._sums = np.zeros((capacity, width), np.float32)
        self._found = np.zeros((capacity, width), np.float64)
        # Both are lengths of an answer as scores count them.
        self._num_new = np.zeros(capacity, np.int64)
        self._max_new = np.zeros(capacity, np.int64)
        self._length_penalty = np.zeros(capacity, np.float64)
        # Whether it ends as soon as its list is full, and whether it hopes for the longest answer.
        self._ends_full = np.zeros(capacity, np.bool_)
        self._hopes = np.zeros(capacity, np.bool_)
        self._columns = [column for column in vars(self).values() if isinstance(column, np.ndarray)]

    def begin(self, *, max_new: int, length_penalty: float, ends_full: bool, hopes: bool, length: int = 0) -> int:
        """Begin a search of at most `max_new` tokens. Returns its number, which is the highest.

        `length` is what an answer's length counts before its first token. Below 0, so many first tokens do not count.
        Their log-probabilities are given as 0.

        It ends when no beam can become better than the worst answer of a full list; if it `ends_full`, as soon as the
        list is full. One that `hopes` takes a beam to get as long as it may. Others take it as it is. With a penalty of
        0 or less, length helps no beam.
        """
        index = self.num
        self.num += 1
        self._sums[index] = _FAR
        self._sums[index, 0] = 0
        self._found[index] = _EMPTY
        self._num_new[index] = length
        self._max_new[index] = length + max_new
        self._length_penalty[index] = length_penalty
        self._ends_full[index] = ends_full
        self._hopes[index] = hopes and length_penalty > 0
        return index

    def remove(self, index: int) -> None:
        """Forget a search. The last one takes its number."""
        self.num -= 1
        for column in self._columns:
            column[index] = column[self.num]

    def scores(self, index: int) -> list[float]:
        """Return the scores of the answers that a search has found, best first. None is below the lowest float32."""
        return [max(score, _LOWEST) for score in self._found[index].tolist() if score > _EMPTY]

    def counting(self, which: Ints) -> Bools:
        """Return which beams of the searches `which` [n] have begun and not ended, [n, width], by their ranks."""
        counting: Bools = self._sums[which] > _FAR / 2
        return counting

    def advance(self, which: Ints, log_probs: Floats, ends: Bools) -> Chosen:
        """Take a step in the searches `which` [n].

        `log_probs` [n, width, k] are of the k best tokens of each beam, by its rank, the best first. `ends` [n, width,
        k] says which of them end an answer.
        """
        width, num = self.width, len(which)
        num_places = log_probs.shape[2]
        num_new = self._num_new[which] + 1
        self._num_new[which] = num_new

        sums = (self._sums[which][:, :, None] + log_probs).reshape(num, -1)
        order = np.argsort(-sums, axis=1, kind="stable")[:, : self.kept]
        sums = np.take_along_axis(sums, order, 1)
        parents, picks = np.divmod(order, num_places)
        hits = np.take_along_axis(ends.reshape(num, -1), order, 1) | (num_new >= self._max_new[which])[:, None]

        onward = np.argsort(hits, axis=1, kind="stable")[:, :width]
        going = np.take_along_axis(sums + hits * _FAR, onward, 1)
        self._sums[which] = going

        places, found = self._enter(which, sums[:, :width], hits[:, :width], num_new)
        full = found[:, -1] > _EMPTY
        hoped = np.where(self._hopes[which], self._max_new[which], num_new)
        can_improve = going[:, 0] / self._divisor(which, hoped) > found[:, -1]
        return Chosen(
            np.take_along_axis(parents, onward, 1),
            np.take_along_axis(picks, onward, 1),
            parents[:, :width],
            picks[:, :width],
            places,
            np.count_nonzero(found > _EMPTY, axis=1),
            ~can_improve | (full & self._ends_full[which]) | hits.all(axis=1),
        )

    def _enter(self, which: Ints, sums: Floats, hits: Bools, num_new: Ints) -> tuple[Ints, Doubles]:
        """Let the best candidates that end into the lists. Returns the place before of each entry, and its score."""
        divisor = self._divisor(which, num_new)[:, None]
        # A beam that has not begun repeats a better one, so what it ends with is no answer.
        scores = np.where(hits & (sums > _FAR / 2), sums / divisor, _EMPTY)
        merged = np.concatenate([self._found[which], scores], axis=1)
        places = np.argsort(-merged, axis=1, kind="stable")[:, : self.width]
        found: Doubles = np.take_along_axis(merged, places, 1)
        self._found[which] = found
        return places, found

    def _divisor(self, which: Ints, lengths: Ints) -> Doubles:
        """Return what a sum is divided by to make a score. Where no token counts, the sum is 0."""
        divisor: Doubles = np.maximum(lengths, 1) ** self._length_penalty[which]
        return divisor
