"""Whether two systems hold the same model: their answers to the same few requests, compared in words."""

import operator

_NEAR = 0.999


def agreement(workload, ours, theirs):
    """One sentence. Random weights leave near ties, so that a token may differ, and all that come after it."""
    if workload.writes:
        pairs = [(a, b) for mine, other in zip(ours, theirs, strict=True) for a, b in zip(mine, other, strict=True)]
        firsts = sum(mine[0] == other[0] for mine, other in zip(ours, theirs, strict=True))
        whole = sum(mine == other for mine, other in zip(ours, theirs, strict=True))
        same = sum(a == b for a, b in pairs)
        distinct = len({a for a, _ in pairs})
        return (
            f"{firsts} of {len(ours)} first tokens, {whole} of {len(ours)} answers, {same} of {len(pairs)} tokens"
            f" equal Weft's ({distinct} different ones)"
        )
    if workload.hears:
        return f"{sum(a == b for a, b in zip(ours, theirs, strict=True))} of {len(ours)} texts have Weft's words"
    if workload.num_texts:
        return f"cosines with Weft's vectors are at least {min(_cosines(ours, theirs)):.6f}"
    best = sum(_best(mine) == _best(other) for mine, other in zip(ours, theirs, strict=True))
    # Weft answers with the most probable labels alone.
    apart = max(
        abs(a - b)
        for mine, other in zip(ours, theirs, strict=True)
        for a, b in zip(mine, other, strict=False)
        if a is not None
    )
    return f"{best} of {len(ours)} best labels equal Weft's, probabilities differ by at most {apart:.1e}"


def first_share(workload, ours, theirs):
    """The share of requests whose first token, or best label, is Weft's; of texts, whose vector nearly is.

    Of recordings, those whose first word is.
    """
    if workload.num_texts:
        cosines = _cosines(ours, theirs)
        return sum(cosine > _NEAR for cosine in cosines) / len(cosines)
    first = (lambda answer: answer[0]) if workload.writes or workload.hears else _best
    return sum(first(mine) == first(other) for mine, other in zip(ours, theirs, strict=True)) / len(ours)


def _cosines(ours, theirs):
    """Of each text; all vectors have the length 1."""
    pairs = [(a, b) for mine, other in zip(ours, theirs, strict=True) for a, b in zip(mine, other, strict=True)]
    return [sum(map(operator.mul, a, b)) for a, b in pairs]


def _best(probabilities):
    return max(range(len(probabilities)), key=lambda index: probabilities[index] or 0)
