"""Candidates as a row's rules leave them, ranked as far as it is certain, and the whole row where that is too little.

The last of K candidates bounds the logits of all tokens beyond them. Where those can only fall, a processed candidate
above the bound is ahead of each of them. Where some may rise, these few are read too and stand among the candidates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.base import BARRED, places
from weft_server.sampling.candidates import Ranked, best

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft_server.logits_processors.arrays import Bools, Floats, Ints
    from weft_server.logits_processors.base import RowRules
    from weft_server.sampling.candidates import Candidates, Count, LogitRows


# A sum of which less than this share is left after scores fell is not known well enough.
_LEAST_LEFT = 0.5
# Of more tokens than these, or than this part of a row, a part of a row is no shorter way than the row.
_MOST_READ = 512
_MOST_OF_ROW = 16
# What is taken from logits to make them scores: nothing.
UNSHIFTED = np.float32(0)


def process(
    candidates: Candidates, rules: Mapping[int, RowRules], drawn: Bools, end_ids: Ints, count: Count
) -> Candidates:
    """Return candidates in which the rows that have rules are as these leave them. Other rows are not looked at.

    `rules` has a row's rules by its number. Rows that are `drawn` [n] need the normaliser. A row whose rules leave no
    token gets an end token.
    """
    width = candidates.topk_ids.shape[1]
    changed = replace(
        candidates,
        topk_logits=candidates.topk_logits.copy(),
        topk_ids=candidates.topk_ids.copy(),
        logsumexp=candidates.logsumexp.copy(),
        logits=(rows := ProcessedRows(candidates.logits, rules)),
        ranked=(ranked := np.ones(candidates.topk_ids.shape, np.bool_)),
        loose=(loose := np.zeros(len(candidates.topk_ids), np.bool_)),
        total_weights=_unknown_of(candidates, list(rules)),
    )
    for row, one in rules.items():
        found = _of_candidates(candidates, row, one, UNSHIFTED)
        if was_read := found is None or not len(found.ids):
            count("rules")
            found = best(rows[row], width)
        if not len(found.ids):
            found = Ranked(end_ids[:1], np.zeros(1, np.float32), BARRED)
        num = min(len(found.ids), width)
        changed.topk_ids[row, :num] = found.ids[:num]
        changed.topk_logits[row, :num] = found.scores[:num]
        changed.topk_logits[row, num:] = found.bound
        ranked[row, num:] = False
        if drawn[row]:
            total = None if was_read else _total(candidates, row, one, found.scores[0])
            loose[row] = total is None
            # No sum has more than all tokens, each as heavy as the best.
            changed.logsumexp[row] = found.scores[0] + np.log(candidates.logits.shape[1]) if total is None else total
    return changed


def _unknown_of(candidates: Candidates, rows: list[int]) -> Floats | None:
    """Return what all tokens of each row weigh, but not of rows whose scores have changed."""
    if candidates.total_weights is None:
        return None
    total_weights = candidates.total_weights.copy()
    total_weights[rows] = np.nan
    return total_weights


class ProcessedRows:
    """All logits of rows, as the rows' rules leave them. A row is processed when it is first asked for."""

    def __init__(self, logits: LogitRows, rules: Mapping[int, RowRules]) -> None:
        self.shape = logits.shape
        self._logits = logits
        self._rules = rules
        self._done: dict[int, Floats] = {}

    def __getitem__(self, row: int) -> Floats:
        """Return one row, [vocab]."""
        if row not in self._rules:
            return self._logits[row]
        if row not in self._done:
            self._done[row] = whole(self._logits, row, self._rules[row])
        return self._done[row]


def rank(
    candidates: Candidates, row: int, rules: RowRules, need: int, *, as_log_probs: bool = False
) -> tuple[Ranked, bool]:
    """Return the best tokens of a row under its rules, and whether all its logits were read for them.

    They are at least `need`, unless the rules leave fewer. With `as_log_probs` the rules change log-probabilities, as
    in a beam search: the logits less the normaliser, in float32. Otherwise they change logits.
    """
    shift = candidates.logsumexp[row] if as_log_probs else UNSHIFTED
    found = _of_candidates(candidates, row, rules, shift)
    if found is not None and len(found.ids) >= need:
        return found, False
    scores = whole(candidates.logits, row, rules, shift)
    return best(scores, need), True


def whole(logits: LogitRows, row: int, rules: RowRules, shift: np.float32 = UNSHIFTED) -> Floats:
    """Return the scores of all tokens of a row under its rules, [vocab]."""
    scores: Floats = logits[row] - shift
    rules.apply(None, scores)
    return scores


def _of_candidates(candidates: Candidates, row: int, rules: RowRules, shift: np.float32) -> Ranked | None:
    """Rank the candidates, and those that may rise, as far as they are ahead of all others. None: too many may rise."""
    raised = rules.raised(min(_MOST_READ, candidates.logits.shape[1] // _MOST_OF_ROW))
    if raised is None:
        return None
    ids, logits = candidates.topk_ids[row], candidates.topk_logits[row]
    bound = logits[-1] - shift
    beyond = np.ones(len(raised), np.bool_)
    beyond[places(ids, raised, len(ids))[1]] = False
    if len(more := raised[beyond]):
        more = more[more < candidates.logits.shape[1]]
        ids = np.concatenate([ids, more])
        logits = np.concatenate([logits, candidates.logits[row][more]])
    scores: Floats = logits - shift
    rules.apply(ids, scores)
    # A token beyond may have the score of the last candidate and a lower id. A graph at int8 ranks logits before it
    # scales them, which may make two of them equal. So may the difference from the normaliser.
    ahead = scores > bound
    if len(candidates.topk_ids[row]) == candidates.logits.shape[1]:
        ahead[:] = True
    ahead &= scores > -np.inf
    ids, scores = ids[ahead], scores[ahead]
    order = np.lexsort((ids, -scores))
    return Ranked(ids[order], scores[order], bound)


def _total(candidates: Candidates, row: int, rules: RowRules, peak: np.float32) -> np.float32 | None:
    """Return the normaliser of a row under its rules, or None if it is not known well.

    It is the model's own, plus what the tokens have gained whose scores have changed.
    """
    touched = rules.touched(_MOST_READ)
    if touched is None:
        return None
    old = candidates.logits[row][touched[touched < candidates.logits.shape[1]]]
    new = old.copy()
    rules.apply(touched[: len(old)], new)
    before = np.exp(np.float64(candidates.logsumexp[row]) - peak)
    after = before + (np.exp(new.astype(np.float64) - peak) - np.exp(old.astype(np.float64) - peak)).sum()
    return np.float32(peak + np.log(after)) if after > _LEAST_LEFT * before else None
