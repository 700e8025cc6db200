"""Beam search over whole rows of log-probabilities, written down plainly: one search, no columns, no slots."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

FAR = np.float32(-1e9)


@dataclass
class Answer:
    """A finished answer."""

    token_ids: list[int]
    score: float


@dataclass
class Searched:
    """The answers, best first, and how close the closest decision was: two scores that were this far apart."""

    answers: list[Answer]
    margin: float


def search(
    log_probs_of,
    num_beams,
    *,
    end_ids,
    max_new,
    min_new=0,
    length_penalty=1.0,
    early_stopping=False,
    forced_end=None,
    num_fed=0,
):
    """Search as transformers does. `log_probs_of(token_ids)` is float32 [vocab], of the token behind these.

    `early_stopping` is False, True or "never". Lengths count `num_fed` tokens that stand before the answer.
    """
    running = [(np.float32(0), [])] + [(FAR, [])] * (num_beams - 1)
    found, margin = [], np.inf
    kept = max(2, 1 + len(end_ids)) * num_beams
    for num_new in range(1, max_new + 1):
        candidates = []
        for rank, (total, token_ids) in enumerate(running):
            scores = np.array(log_probs_of(token_ids), np.float32)
            if num_new <= min_new:
                scores[end_ids] = -np.inf
            if forced_end is not None and num_new == max_new:
                scores[:] = -np.inf
                scores[forced_end] = 0
            order = np.argsort(-scores, kind="stable")[: kept + 1]
            candidates += [(total + scores[token], rank, place, int(token)) for place, token in enumerate(order)]
        candidates.sort(key=lambda one: (-one[0], one[1], one[2]))
        margin = min(margin, _closest([one[0] for one in candidates[: kept + 1]]))
        best = [
            (total, [*running[rank][1], token], token in end_ids or num_new == max_new)
            for total, rank, _, token in candidates[:kept]
        ]
        running = [(total, token_ids) for total, token_ids, ends in best if not ends][:num_beams]
        running += [(total + FAR, token_ids) for total, token_ids, ends in best if ends][: num_beams - len(running)]
        divisor = float(num_fed + num_new) ** length_penalty
        # A beam that has not begun, or that nothing may come behind, ends with no answer.
        ended = [(total, ids) for total, ids, ends in best[:num_beams] if ends and total > FAR / 2]
        found += [Answer(ids, float(total) / divisor) for total, ids in ended]
        found.sort(key=lambda answer: -answer.score)
        margin = min(margin, _closest([answer.score for answer in found[: num_beams + 1]]))
        del found[num_beams:]
        full = len(found) == num_beams
        length = max_new if early_stopping == "never" and length_penalty > 0 else num_new
        hope = float(running[0][0]) / float(num_fed + length) ** length_penalty
        worst = found[-1].score if full else -np.inf
        if full and hope > FAR / 2:
            margin = min(margin, abs(hope - worst))
        if hope <= worst or (full and early_stopping is True) or all(ends for _, _, ends in best):
            break
    return Searched(found, margin)


def _closest(scores):
    """The smallest difference of two neighbours among scores that count."""
    scores = [score for score in scores if score > FAR / 2]
    return min((float(one) - float(other) for one, other in pairwise(scores)), default=np.inf)
