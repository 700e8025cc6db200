"""The rows of a lane that belong to beam searches: what each is given, and how a beam's past follows it.

Ranks are apart from slots. In a step each beam that goes on has a parent. The parent's first child stays in its slot.
Only further children are copied, into slots of parents that have none. Sources stay as they are, so the order of copies
does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.errors import InvalidRequest
from weft_server.logits_processors.base import BARRED
from weft_server.sampling.beam_search import BeamSearches, Chosen, num_decisive, num_kept
from weft_server.sampling.candidates import Ranked, top_logprobs_of
from weft_server.sampling.processed_candidates import rank
from weft_server.sequence import EarlyStopping, FinishReason, Output

if TYPE_CHECKING:
    from weft_server.engine.pasts import Pasts
    from weft_server.engine.slots import Slots
    from weft_server.errors import RequestError
    from weft_server.sampling.candidates import Candidates, Count
    from weft_server.sequence import Sequence


@dataclass(slots=True, eq=False)
class _Search:
    """One search: its number among those of its kind, and the answers that it has found, best first."""

    sequence: Sequence
    kind: _Kind
    index: int
    found: list[Output] = field(default_factory=list)


class _Kind(NamedTuple):
    """Searches that step together. Its number stands in `Slots.search_kind`."""

    number: int
    searches: BeamSearches
    members: list[_Search]
    # How many candidates of each row it looks at.
    num_decisive: int


class _Step(NamedTuple):
    """What n searches of one kind choose from, [n, width, k], and the slots of their beams by rank, [n, width]."""

    members: list[_Search]
    slots: np.ndarray
    ids: np.ndarray
    # As rules have changed them. -inf is no candidate.
    scores: np.ndarray
    # The log-probabilities that the model itself gives to them.
    own: np.ndarray
    # What a beam's token must be, whatever the model says, [n, width]. -1 for any.
    forced: np.ndarray


class BeamRows:
    """All searches of a lane. `num` is how many there are."""

    def __init__(self, slots: Slots, pasts: Pasts, *, end_ids: np.ndarray, count: Count) -> None:
        self._slots = slots
        self._pasts = pasts
        self._end_ids = end_ids
        self._count = count
        self._kinds: dict[tuple[int, int], _Kind] = {}
        self._by_sequence: dict[Sequence, _Search] = {}
        # The slot that the beam in each slot had its last token from. Others' mean nothing.
        self.parents = np.arange(slots.num_slots)
        # Beams that were copied in this step: from, onto.
        self._moves: list[tuple[np.ndarray, np.ndarray]] = []

    @property
    def num(self) -> int:
        """How many searches there are."""
        return len(self._by_sequence)

    def begin(self, sequence: Sequence, first: int) -> None:
        """Begin a search in the slots from `first` on. They lie side by side for now, and hold the same."""
        beams = sequence.text_decoding.beams
        assert beams is not None, f"{sequence.request_id} is no beam search. This is a bug."
        num_end_ids = len(sequence.text_decoding.stop_ids.union(self._end_ids.tolist()))
        key = beams.num_beams, num_end_ids
        if key not in self._kinds:
            searches = BeamSearches(beams.num_beams, num_kept(*key), capacity=self._slots.num_slots // beams.num_beams)
            self._kinds[key] = _Kind(len(self._kinds), searches, [], num_decisive(*key))
        kind = self._kinds[key]
        index = kind.searches.begin(
            max_new=sequence.text_decoding.max_new_tokens,
            length_penalty=beams.length_penalty,
            ends_full=beams.early_stopping is EarlyStopping.FULL,
            hopes=beams.early_stopping is EarlyStopping.NEVER,
            length=_first_length(sequence),
        )
        search = _Search(sequence, kind, index)
        kind.members.append(search)
        self._by_sequence[sequence] = search
        rows = slice(first, first + beams.num_beams)
        self._slots.search_kind[rows], self._slots.search[rows] = kind.number, search.index

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence's search, if it has one that has begun."""
        search = self._by_sequence.pop(sequence, None)
        if search is None:
            return
        kind, slots = search.kind, self._slots
        kind.searches.remove(search.index)
        last = kind.members.pop()
        if last is not search:
            slots.search[(slots.search_kind == kind.number) & (slots.search == last.index)] = search.index
            last.index = search.index
            kind.members[last.index] = last

    def clear(self) -> None:
        """Forget all searches, and what a step that failed has left."""
        self._moves.clear()
        for sequence in list(self._by_sequence):
            self.remove(sequence)

    def choose(
        self, start: int, candidates: Candidates, ids: np.ndarray, log_probs: np.ndarray
    ) -> list[tuple[Sequence, list[Output] | RequestError]]:
        """Change the next token of each beam among the rows from `start` on, and its log-probability.

        Before that, its past is brought to its slot. Returns the searches that are done, with their answers, or why
        there is none. They are still here.
        """
        done: list[tuple[Sequence, list[Output] | RequestError]] = []
        for kind in self._kinds.values():
            if kind.members:
                done += self._choose(kind, start, candidates, ids, log_probs)
        if self._moves:
            sources, targets = (np.concatenate(parts) for parts in zip(*self._moves, strict=True))
            self._moves.clear()
            self._copy(sources, targets)
        return done

    def _choose(
        self, kind: _Kind, start: int, candidates: Candidates, ids: np.ndarray, log_probs: np.ndarray
    ) -> list[tuple[Sequence, list[Output] | RequestError]]:
        slots = self._slots
        which, by_rank = self._beams_of(kind, start)
        if not len(which):
            return []
        # A search that is done in this step has no children.
        self.parents[by_rank] = by_rank
        step = self._step(kind, which, by_rank, start, candidates)
        chosen = kind.searches.advance(which, step.scores, self._ends(step))
        self._note_found(step, chosen, start, candidates)
        going = ~chosen.done
        if going.any():
            onto = self._settle(by_rank[going], chosen.parents[going])
            slots.rank[onto] = np.arange(kind.searches.width)
            self.parents[onto] = np.take_along_axis(by_rank[going], chosen.parents[going], 1)
            beams = np.flatnonzero(going)[:, None], chosen.parents[going], chosen.picks[going]
            ids[onto - start] = step.ids[beams]
            log_probs[onto - start] = step.own[beams]
        done = [(step.members[index], int(step.slots[index, 0])) for index in np.flatnonzero(chosen.done).tolist()]
        return [(search.sequence, self._answers(search) or self._why_none(best)) for search, best in done]

    def _ends(self, step: _Step) -> np.ndarray:
        """Return which tokens of a step end their answer, [n, width, k]."""
        ends: np.ndarray = (step.ids[..., None] == self._end_ids).any(axis=-1)
        for index, search in enumerate(step.members):
            if stop_ids := _stop_ids(search):
                ends[index] |= np.isin(step.ids[index], list(stop_ids))
        return ends

    def _beams_of(self, kind: _Kind, start: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which searches of a kind have rows from `start` on that choose, [n], and their slots by rank."""
        slots = self._slots
        rows = np.flatnonzero(slots.search_kind[start : slots.num_running] == kind.number) + start
        by_rank = np.full((kind.searches.num, kind.searches.width), -1)
        by_rank[slots.search[rows], slots.rank[rows]] = rows
        # A row that is still fed its prefix chooses nothing.
        which = np.flatnonzero((by_rank[:, 0] >= 0) & (slots.prefix_left[by_rank[:, 0]] == 0))
        return which, by_rank[which]

    def _step(self, kind: _Kind, which: np.ndarray, by_rank: np.ndarray, start: int, candidates: Candidates) -> _Step:
        """Return what searches choose from: the best candidates of each beam, as its rules leave them."""
        slots, need, rows = self._slots, kind.num_decisive, by_rank - start
        ids = candidates.topk_ids[:, :need][rows]
        scores = candidates.topk_logits[:, :need][rows] - candidates.logsumexp[rows][..., None]
        wanted = slots.forced(start, slots.num_running)
        forced = np.full(by_rank.shape, -1) if wanted is None else wanted[rows]
        step = _Step([kind.members[index] for index in which.tolist()], by_rank, ids, scores, scores, forced)
        barred = slots.num_new[by_rank] < slots.min_new[by_rank]
        if barred.any():
            # As many others as there are beams are left.
            scores[barred[..., None] & (ids[..., None] == self._end_ids).any(axis=-1)] = -np.inf
        # Rows whose candidates do not stand as they are.
        changed = slots.has_rules[by_rank] | (forced >= 0)
        if changed.any():
            step = step._replace(own=scores.copy())
            counting = kind.searches.counting(which)
            for place in map(tuple, np.argwhere(changed).tolist()):
                self._change(step, place, start, candidates, need, may_end=bool(counting[place]))
        return step

    def _change(
        self, step: _Step, place: tuple[int, ...], start: int, candidates: Candidates, need: int, *, may_end: bool
    ) -> None:
        """Write into a step what a row's rules leave of its tokens: an end if that is nothing and it `may_end`."""
        slot = int(step.slots[place])
        ids, scores, own = step.ids[place], step.scores[place], step.own[place]
        if step.forced[place] >= 0:
            # It counts as certain, as in transformers. A prefix does not count at all.
            ids[0], scores[0], num = step.forced[place], 0, 1
        else:
            found, was_read = rank(candidates, slot - start, self._slots.rules_of(slot), need, as_log_probs=True)
            if was_read:
                self._count("rules")
            if may_end and not len(found.ids) and self._is_whole(slot):
                found = self._end_of(candidates, slot - start)
            num = min(len(found.ids), len(ids))
            ids[:num], scores[:num] = found.ids[:num], found.scores[:num]
        scores[num:] = -np.inf
        own[:num] = candidates.logits[slot - start][ids[:num]] - candidates.logsumexp[slot - start]

    def _is_whole(self, slot: int) -> bool:
        """Whether the answer in a slot is what it must be, so that it may end."""
        rules = self._slots.rules[slot]
        return rules is None or rules.refusal(ends=True) is None

    def _end_of(self, candidates: Candidates, row: int) -> Ranked:
        """Return an end token alone, as probable as the model finds it."""
        ids = self._end_ids[:1]
        return Ranked(ids, candidates.logits[row][ids] - candidates.logsumexp[row], BARRED)

    def _note_found(self, step: _Step, chosen: Chosen, start: int, candidates: Candidates) -> None:
        """Keep the answers that have just entered the lists, and forget those that have left."""
        width = step.slots.shape[1]
        fresh = (chosen.places >= width) & (np.arange(width) < chosen.num_found[:, None])
        for index in np.flatnonzero(fresh.any(axis=1)).tolist():
            before = step.members[index].found
            step.members[index].found = [
                before[place] if place < width else self._ended(step, chosen, (index, place - width), start, candidates)
                for place in chosen.places[index, : chosen.num_found[index]].tolist()
            ]

    def _ended(self, step: _Step, chosen: Chosen, which: tuple[int, int], start: int, candidates: Candidates) -> Output:
        """The answer that ends with one of the best candidates of a search. See `_answers` for its score."""
        slots = self._slots
        parent = which[0], int(chosen.best_parents[which])
        place = *parent, int(chosen.best_picks[which])
        slot, token = int(step.slots[parent]), int(step.ids[place])
        # A forced end that the model has chosen is its own.
        own = step.forced[parent] < 0 or token == candidates.topk_ids[slot - start, 0]
        at_end = own and (token in self._end_ids or token in _stop_ids(step.members[which[0]]))
        # A forced end may come where a rule would not let it.
        at_end = at_end and self._is_whole(slot)
        read, num_top = slice(int(slots.num_new[slot])), int(slots.num_top[slot])
        return Output(
            [*slots.output_ids[slot, read].tolist(), token],
            [*slots.log_probs[slot, read].tolist(), float(step.own[place])],
            FinishReason.STOP if at_end else FinishReason.LENGTH,
            tops=[*slots.tops[slot], top_logprobs_of(candidates, slot - start, num_top)] if num_top else [],
        )

    def _settle(self, by_rank: np.ndarray, parents: np.ndarray) -> np.ndarray:
        """Return the slots of beams that go on, [n, width], and note which are copied.

        `by_rank` are the slots until now. `parents` are ranks.
        """
        same = parents[:, :, None] == parents[:, None, :]
        is_first = ~np.tril(same, -1).any(axis=2)
        onto = np.take_along_axis(by_rank, parents, 1)
        childless = np.ones(by_rank.shape, np.bool_)
        np.put_along_axis(childless, parents, values=False, axis=1)
        # A search has as many further children as it has parents without any, so both lists are in step.
        sources, targets = onto[~is_first], by_rank[childless]
        onto[~is_first] = targets
        if len(sources):
            self._moves.append((sources, targets))
        return onto

    def _copy(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Bring the pasts of beams to other slots, from where they part from what is there. See States.fork."""
        slots = self._slots
        num_new = slots.num_new[sources]
        stops = slots.past_lengths[sources].astype(np.int64)
        self._pasts.fork(sources, targets, stops - num_new + slots.num_shared(sources, targets), stops)
        slots.fork(sources, targets)

    def _answers(self, search: _Search) -> list[Output]:
        """The answers that a search was asked for, with their scores."""
        scores = search.kind.searches.scores(search.index)
        outputs = [replace(output, score=score) for output, score in zip(search.found, scores, strict=True)]
        return outputs[: search.sequence.text_decoding.num_outputs]

    def _why_none(self, slot: int) -> RequestError:
        """Return why a search has found no answer: the rules of its best beam leave nothing, and it must not end."""
        rules = self._slots.rules[slot]
        refusal = rules.refusal(ends=True) if rules is not None else None
        return refusal or InvalidRequest("decoding", "leaves no token that may come: its fields contradict each other")


def _first_length(sequence: Sequence) -> int:
    """Return the length that an answer counts before its first token, as in transformers.

    It generates what a bundle feeds a translator's decoder, and counts it. A question, and what a transcription begins
    with, are given to it, and not counted. Given a prefix, it counts what comes behind that.
    """
    num_unscored = sequence.text_decoding.num_unscored
    if num_unscored:
        return -num_unscored
    return len(sequence.prefix_ids) if sequence.source.answer_has_prefix else 0


def _stop_ids(search: _Search) -> frozenset[int]:
    return search.sequence.text_decoding.stop_ids
