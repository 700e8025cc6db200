"""What the rows of a lane are given in a step: each row's next token, by its own settings, rules and search."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.sampling.candidates import best_of_row, force, top_logprobs_of
from weft_server.sampling.processed_candidates import process
from weft_server.sampling.sampler import sample

if TYPE_CHECKING:
    from weft_server.engine.beam_rows import BeamRows
    from weft_server.engine.slots import Slots
    from weft_server.errors import RequestError
    from weft_server.sampling.candidates import Candidates, Count
    from weft_server.sequence import Output, Sequence


class SelectedTokens(NamedTuple):
    """What a step gives to n rows: arrays [n], and rows by their number among these."""

    ids: np.ndarray
    log_probs: np.ndarray
    # Whether the token is one of the answer. One of a prefix that the row is still fed is none.
    chosen: np.ndarray
    # Whether it ends the answer.
    at_end: np.ndarray
    # Rows that find no token to begin an alternative with.
    missing: list[int]
    # Why a row cannot go on under its rules.
    refused: dict[int, RequestError]
    # Searches that are done in this step, with their answers, or why there is none.
    found: list[tuple[Sequence, list[Output] | RequestError]]
    # Whether any row has beams, rules, alternatives, stop tokens or forced ones, or wants the most probable tokens.
    special: bool


class TokenSelection:
    """Chooses the next tokens of the rows of a lane, and writes them into their slots."""

    def __init__(self, slots: Slots, beams: BeamRows, *, end_ids: np.ndarray, count: Count) -> None:
        self._slots = slots
        self._beams = beams
        self._end_ids = end_ids
        # By id, up to one behind the last end token, which stands for all beyond.
        self._is_end = np.isin(np.arange(2 + end_ids.max(initial=-1)), end_ids)
        self._count = count

    def give(self, start: int, candidates: Candidates) -> SelectedTokens:
        """Give the rows from `start` on their next token, of a run's candidates of them."""
        slots = self._slots
        rows = slice(start, slots.num_running)
        special = bool(np.count_nonzero(slots.is_special[rows]))
        ruled: list[int] = []
        if special:
            # A row that is still fed its prefix chooses nothing. A beam's rules are asked by its search.
            alone = ~slots.is_beam[rows] & (slots.prefix_left[rows] == 0)
            ruled = np.flatnonzero(slots.has_rules[rows] & alone).tolist()
            ids, log_probs, missing = self._choose(start, candidates, ruled)
        else:
            ids, log_probs = sample(candidates, slots.settings(start, slots.num_running), self._end_ids, self._count)
            missing = []
        at_end = self._is_end.take(ids, mode="clip")
        if special:
            self._note_own_ends(start, candidates, ids, log_probs, at_end)
        found = self._beams.choose(start, candidates, ids, log_probs) if self._beams.num else []
        chosen = slots.give(start, ids, log_probs)
        if special:
            chosen[missing] = False
            self._note_tops(start, candidates, chosen)
        at_end &= chosen
        refused = self._refused(start, chosen, at_end) if special else {}
        return SelectedTokens(ids, log_probs, chosen, at_end, missing, refused, found, special)

    def _choose(self, start: int, candidates: Candidates, ruled: list[int]) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Return the next token of the rows from `start` on, its log-probability, and who begins no alternative.

        The rows of `ruled` have rules.
        """
        slots = self._slots
        settings = slots.settings(start, slots.num_running)
        begun = slots.begun_alternatives(start)
        # These hold the same as the first of their sequence, which is asked for all of them.
        others = {row for group in begun for row in group[1:]}
        ruled = [row for row in ruled if row not in others]
        processed = candidates
        if ruled:
            rules = {row: slots.rules_of(start + row) for row in ruled}
            processed = process(candidates, rules, settings.temperature > 0, self._end_ids, self._count)
        ids, log_probs = sample(processed, settings, self._end_ids, self._count)
        missing: list[int] = []
        for group in begun:
            missing += self._begin_alternatives(start, group, processed, ids)
        for row in (*ruled, *chain(*begun)):
            log_probs[row] = candidates.log_prob(row, ids[row])
        return ids, log_probs, missing

    def _begin_alternatives(self, start: int, group: list[int], candidates: Candidates, ids: np.ndarray) -> list[int]:
        """Give each row of a sequence the token that is as much worse than the best as its rank says.

        `group` has the rows by rank, counted from `start`. Returns those for which there is no token. They are given
        what the first one is, which is no part of any answer.
        """
        first = group[0]
        ranks = self._slots.rank[start:][group].tolist()
        barred = self._end_ids if self._slots.is_short(start + first) else self._end_ids[:0]
        found = best_of_row(candidates, first, ranks[-1] + 1, barred, self._count)
        # Where none may come, the first one ends, with what it has been given.
        found = found or [int(ids[first])]
        for row, rank in zip(group, ranks, strict=True):
            ids[row] = found[rank] if rank < len(found) else found[0]
        return [row for row, rank in zip(group, ranks, strict=True) if rank >= len(found)]

    def _note_own_ends(
        self, start: int, candidates: Candidates, ids: np.ndarray, log_probs: np.ndarray, at_end: np.ndarray
    ) -> None:
        """Let the rows from `start` on end at their own stop tokens, and not at a token that is forced."""
        slots = self._slots
        stop = slots.num_running
        for row in np.flatnonzero(slots.has_stops[start:stop]).tolist():
            at_end[row] |= int(ids[row]) in slots.decoding_of(start + row).stop_ids
        forced = slots.forced(start, stop)
        if forced is not None:
            at_end &= ~force(candidates, ids, log_probs, forced, scored=slots.reads_all[start:stop])

    def _note_tops(self, start: int, candidates: Candidates, chosen: np.ndarray) -> None:
        """Keep the most probable tokens of this step for the rows from `start` on whose callers want them.

        A beam's step was that of the row which it comes from.
        """
        slots = self._slots
        for row in np.flatnonzero((slots.num_top[start : slots.num_running] > 0) & chosen).tolist():
            slot = start + row
            origin = int(self._beams.parents[slot]) - start if slots.is_beam[slot] else row
            slots.tops[slot].append(top_logprobs_of(candidates, origin, int(slots.num_top[slot])))

    def _refused(self, start: int, chosen: np.ndarray, at_end: np.ndarray) -> dict[int, RequestError]:
        """Return which rows from `start` on cannot go on under their rules, counted from there, and why."""
        slots = self._slots
        rows = slice(start, slots.num_running)
        # A beam that cannot go on gives way to others.
        ruled = np.flatnonzero(slots.has_rules[rows] & chosen & ~slots.is_beam[rows]).tolist()
        refusals = {row: slots.rules_of(start + row).refusal(ends=bool(at_end[row])) for row in ruled}
        return {row: refusal for row, refusal in refusals.items() if refusal is not None}
