"""Word error rate: how many words of a reference must be changed, left out or put in."""

from collections.abc import Sequence


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
