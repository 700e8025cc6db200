"""What a recipe measured, in what time: words of translations and transcriptions that are right or wrong."""

import math
import time
from collections import Counter
from collections.abc import Sequence

Figures = dict[str, float | int | str]
"""What a recipe measured on held-out data, by name."""


class Stopwatch:
    """How long a recipe takes, in wall time and in processor time: the second does not count what others computed."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def figures(self) -> Figures:
        """Return the seconds since the beginning."""
        return {
            "wall seconds": round(time.monotonic() - self._wall),
            "CPU seconds": round(time.process_time() - self._cpu),
        }


MAX_ORDER = 4


def bleu(answers: Sequence[str], references: Sequence[str]) -> float:
    """Return BLEU in [0, 1] of a whole corpus, words being what stands between spaces; without smoothing.

    The geometric mean of the precisions of 1 to 4 words in a row, times the penalty for answers that are too short; 0
    if no four words in a row are right.
    """
    hits, totals = [0] * MAX_ORDER, [0] * MAX_ORDER
    answered = wanted = 0
    for answer, reference in zip(answers, references, strict=True):
        a, r = answer.split(), reference.split()
        answered, wanted = answered + len(a), wanted + len(r)
        for order in range(MAX_ORDER):
            ours, theirs = _grams(a, order + 1), _grams(r, order + 1)
            hits[order] += (ours & theirs).total()
            totals[order] += ours.total()
    if not answered or 0 in hits:
        return 0.0
    precision = math.exp(sum(math.log(hit / total) for hit, total in zip(hits, totals, strict=True)) / MAX_ORDER)
    return precision * min(1.0, math.exp(1 - wanted / answered))


def _grams(words: list[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[first : first + size]) for first in range(len(words) - size + 1))


def word_error_rate(answers: Sequence[str], references: Sequence[str]) -> float:
    """Return the changes of all answers together by the words of all references; it may be above 1."""
    changes = sum(_changes(a.split(), r.split()) for a, r in zip(answers, references, strict=True))
    return changes / sum(len(reference.split()) for reference in references)


def _changes(answer: list[str], reference: list[str]) -> int:
    """Return the least number of words to replace, remove or add (Levenshtein 1966)."""
    row = list(range(len(reference) + 1))
    for index, word in enumerate(answer, start=1):
        before, row[0] = row[0], index
        for place, wanted in enumerate(reference, start=1):
            before, row[place] = row[place], min(before + (word != wanted), row[place] + 1, row[place - 1] + 1)
    return row[-1]
