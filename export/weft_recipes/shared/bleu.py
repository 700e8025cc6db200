"""BLEU: how many of a translation's words, and of its runs of words, are right (Papineni et al. 2002)."""

import math
from collections import Counter
from collections.abc import Sequence

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
