"""The decode slots of one lane: which sequence holds which, and each row's numbers.

The numbers are columns that the runner binds directly. Running sequences hold the slots [0, num_running). One sequence
may be in prefill: it holds slot num_running. Within a step of a paged lane there may be more.

A sequence may hold several slots, in any order and anywhere among those that run. Its rank says which of its rows a
slot is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_proto.sight import NUM_AXES
from weft_server.logits_processors.base import RowRules
from weft_server.logits_processors.history import NO_IDS, History
from weft_server.runtime.adapter_stack import NONE
from weft_server.sampling.sampler import Sampling, Settings
from weft_server.source import Ids

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from weft_server.runtime.adapter_stack import AdapterStack
    from weft_server.sampling.candidates import TopLogprobs
    from weft_server.sequence import Decoding, Sequence


# Seeds are counted modulo this.
_NUM_SEEDS = 1 << 64
_NO_SEARCH = -1
_GREEDY = Sampling(temperature=0.0, top_k=0, top_p=1.0, seed=0)
_SAMPLING = [each.name for each in fields(Sampling)]


@dataclass(frozen=True, slots=True)
class Kept:
    """A row that is out of its slot: its part of each column, its rules and the most probable tokens of its steps."""

    sequence: Sequence
    num_new: int
    columns: list[Any]
    rules: RowRules | None
    tops: list[TopLogprobs]

    def close(self) -> None:
        """Let go of its rules: it does not come back."""
        if self.rules is not None:
            self.rules.close()


class Slots:
    """Columns over `num_slots` slots. Rows [0, num_running) are decoded together in every step."""

    def __init__(
        self, num_slots: int, max_new_tokens: int, max_prefix: int = 0, stack: AdapterStack | None = None
    ) -> None:
        """`stack` holds the adapters of the rows, if the model takes any."""
        self.num_slots = num_slots
        self.stack = stack
        self.num_running = 0
        self.sequences: list[Sequence | None] = [None] * num_slots
        # What the decoder graph reads. Shapes are those of its ports. A batch is a prefix of the rows.
        self.input_ids = np.zeros((num_slots, 1), np.int64)
        self.past_lengths = np.zeros(num_slots, np.int32)
        self.memory_lengths = np.ones(num_slots, np.int32)
        # What is added to the place of what it writes, for each of its positions: see Source.offset_behind.
        self.position_offsets = np.zeros((num_slots, 1, NUM_AXES), np.int64)
        # Where the adapter of each row is in the stack.
        self.adapters = np.full(num_slots, NONE, np.int64)
        # What is fed before the first token that is chosen, with its end at the columns' end. And how many are left.
        self.prefix_ids = np.zeros((num_slots, max_prefix), np.int64)
        self.prefix_left = np.zeros(num_slots, np.int64)
        # What was produced.
        self.num_new = np.zeros(num_slots, np.int64)
        self.output_ids = np.zeros((num_slots, max_new_tokens), np.int64)
        self.log_probs = np.zeros((num_slots, max_new_tokens), np.float32)
        # Runs in which no draft of it was right, since all of a run were.
        self.num_missed = np.zeros(num_slots, np.int64)
        # When the last token came, in monotonic seconds. Before the first one, anything.
        self.last_token = np.zeros(num_slots, np.float64)
        # What the request asked for.
        self.max_new = np.zeros(num_slots, np.int64)
        self.min_new = np.zeros(num_slots, np.int64)
        self.sampling = Settings.zeros(self.num_new, self.min_new)
        self.deadline = np.full(num_slots, np.inf)
        self.wants_tokens = np.zeros(num_slots, np.bool_)
        # Whether a row needs more of a run than its best candidates: it is sampled, or its caller wants scores.
        self.reads_all = np.zeros(num_slots, np.bool_)
        # The rules of each row that has some, and whether it has.
        self.rules: list[RowRules | None] = [None] * num_slots
        self.has_rules = np.zeros(num_slots, np.bool_)
        # How many tokens the answer begins with, whatever the model says, and the last that it may have. -1: none.
        self.num_forced = np.zeros(num_slots, np.int64)
        self.forced_last = np.full(num_slots, -1, np.int64)
        # Whether other tokens than the model's own end tokens end it.
        self.has_stops = np.zeros(num_slots, np.bool_)
        # Which of its sequence's rows it is, from 0. A beam search ranks its rows anew in each step.
        self.rank = np.zeros(num_slots, np.int64)
        # How many of the most probable tokens of each step its caller wants, and those until now.
        self.num_top = np.zeros(num_slots, np.int64)
        self.tops: list[list[TopLogprobs]] = [[] for _ in range(num_slots)]
        # Whether its sequence is a beam search. Then the row chooses no token, and does not end by itself. And which
        # search it is: see `beam_rows`.
        self.is_beam = np.zeros(num_slots, np.bool_)
        self.search_kind = np.full(num_slots, _NO_SEARCH)
        self.search = np.zeros(num_slots, np.int64)
        # Whether its first token is the one that is `rank` worse than the best.
        self.is_alternative = np.zeros(num_slots, np.bool_)
        # Whether it has rules, stop, forced or top tokens, or is a beam or an alternative. Where no row is
        # special, a step asks for none of it.
        self.is_special = np.zeros(num_slots, np.bool_)
        self.columns = [column for column in vars(self).values() if isinstance(column, np.ndarray)]
        self.columns += [getattr(self.sampling, name) for name in _SAMPLING]
        self._numbers = np.arange(num_slots)
        self._settings: dict[int, Settings] = {}

    @property
    def num_used(self) -> int:
        """Slots that are held, the one in prefill included."""
        return sum(sequence is not None for sequence in self.sequences)

    def place(self, slot: int, sequence: Sequence, given: Many[int] | np.ndarray = (), rank: int = 0) -> None:
        """Give `slot` to a sequence and set its columns. The row starts with nothing produced and an empty cache.

        Its rules look back at what it is `given`: a prompt, or a start token and what is fed behind it.
        """
        assert self.sequences[slot] is None, f"slot {slot} is held. This is a bug."
        decoding = sequence.text_decoding
        sampling = decoding.sampling

        self.sequences[slot] = sequence
        sequence.num_slots += 1
        if sequence.slot is None:
            sequence.slot = slot

        self.past_lengths[slot] = 0
        self.memory_lengths[slot] = 1
        self.position_offsets[slot] = sequence.source.offset_behind
        self.adapters[slot] = self.stack.take(sequence.adapter) if self.stack else NONE
        self.num_new[slot] = 0
        self.num_missed[slot] = 0

        self.prefix_left[slot] = num_prefix = len(sequence.prefix_ids)
        self.prefix_ids[slot, self.prefix_ids.shape[1] - num_prefix :] = sequence.prefix_ids
        self.max_new[slot] = decoding.max_new_tokens
        self.min_new[slot] = 0 if decoding.rules else decoding.min_new_tokens
        drawn = replace(sampling, seed=(sampling.seed + rank) % _NUM_SEEDS) if sampling else _GREEDY
        for name in _SAMPLING:
            getattr(self.sampling, name)[slot] = getattr(drawn, name)
        self.deadline[slot] = sequence.deadline
        self.wants_tokens[slot] = sequence.wants_tokens
        self.reads_all[slot] = sampling is not None or sequence.wants_scores or decoding.beams is not None
        # Of alternatives, more may be wanted than there are candidates.
        self.reads_all[slot] |= bool(decoding.rules) or decoding.alternatives
        self.reads_all[slot] |= sequence.num_top_tokens > 0
        self.num_top[slot] = sequence.num_top_tokens
        self.tops[slot] = []
        self.has_rules[slot] = bool(decoding.rules)
        self.rules[slot] = _begin(sequence, given) if decoding.rules else None
        self.num_forced[slot] = len(decoding.forced_ids)
        self.forced_last[slot] = -1 if decoding.forced_last_id is None else decoding.forced_last_id
        self.has_stops[slot] = bool(decoding.stop_ids)
        self.rank[slot] = rank
        self.is_beam[slot] = decoding.beams is not None
        self.search_kind[slot] = _NO_SEARCH
        self.is_alternative[slot] = decoding.alternatives
        self.is_special[slot] = decoding.is_special or self.num_top[slot] > 0

    def give(self, start: int, ids: np.ndarray, log_probs: np.ndarray) -> np.ndarray:
        """Give the rows from `start` on their next token, by which the next run goes on.

        A row whose prefix has not been read is given the next id of that instead, which is no part of its answer.
        Returns bool [rows]: which answers have a token more.
        """
        stop = self.num_running
        rows, num_new = self._numbers[start:stop], self.num_new[start:stop]
        chosen: np.ndarray = self.prefix_left[start:stop] == 0
        # A row in its prefix writes here too. The first token of its answer overwrites that.
        self.output_ids[rows, num_new] = ids
        self.log_probs[rows, num_new] = log_probs
        self.input_ids[start:stop, 0] = ids
        if np.count_nonzero(chosen) < stop - start:
            for row in rows[~chosen].tolist():
                self.input_ids[row] = self.prefix_ids[row, -self.prefix_left[row]]
                self.prefix_left[row] -= 1
        num_new += chosen
        if np.count_nonzero(self.is_special[start:stop]):
            for row in np.flatnonzero(self.has_rules[start:stop] & chosen).tolist():
                self.rules_of(start + row).advance(int(ids[row]))
        return chosen

    def skip_prefix(self, slot: int, last: int) -> None:
        """Let a row's next run feed the last id of its prefix: all before has been read."""
        self.input_ids[slot], self.prefix_left[slot] = last, 0

    def follow(self, source: int, target: int) -> None:
        """Let a row that has just begun go on where another of its sequence does."""
        for column in (self.input_ids, self.past_lengths, self.prefix_left):
            column[target] = column[source]

    def forced(self, start: int, stop: int) -> np.ndarray | None:
        """Return what the next tokens of rows [start, stop) must be, whatever the model says: -1 for any.

        None if no row must be given one. A row that must begin with some tokens is given them before all else.
        """
        num_new = self.num_new[start:stop]
        begins = num_new < self.num_forced[start:stop]
        ends = (self.forced_last[start:stop] >= 0) & (num_new + 1 == self.max_new[start:stop])
        if not (begins | ends).any():
            return None
        forced = np.where(ends, self.forced_last[start:stop], -1)
        for row in np.flatnonzero(begins).tolist():
            forced[row] = self.decoding_of(start + row).forced_ids[num_new[row]]
        return forced

    def begun_alternatives(self, start: int) -> list[list[int]]:
        """Rows from `start` on, counted from there, whose next token is the one of their rank and not the best.

        Those of a sequence stand together, by rank. Until now they all hold the same.
        """
        rows = slice(start, self.num_running)
        alternatives = self.is_alternative[rows]
        if not alternatives.any():
            return []
        first = (self.num_new[rows] == self.num_forced[rows]) & (self.prefix_left[rows] == 0)
        groups: dict[Sequence | None, list[int]] = {}
        for row in sorted(np.flatnonzero(alternatives & first).tolist(), key=lambda row: self.rank[start + row]):
            groups.setdefault(self.sequences[start + row], []).append(row)
        return list(groups.values())

    def is_short(self, slot: int) -> bool:
        """Whether a row's answer must not end yet. That of a row with rules is for these to say."""
        return bool(self.num_new[slot] < self.min_new[slot])

    def decoding_of(self, slot: int) -> Decoding:
        """Return how the sequence in a slot decodes."""
        return self.sequence_in(slot).text_decoding

    def sequence_in(self, slot: int) -> Sequence:
        """Return the sequence that holds a slot."""
        held = self.sequences[slot]
        assert held is not None, f"slot {slot} is free. This is a bug."
        return held

    def rules_of(self, slot: int) -> RowRules:
        """Return the rules of a row that has some."""
        rules = self.rules[slot]
        assert rules is not None, f"slot {slot} has no rules. This is a bug."
        return rules

    def clear(self, slot: int) -> None:
        """Take the slot from its sequence, leaving a hole."""
        sequence = self.sequence_in(slot)
        sequence.num_slots -= 1
        if not sequence.num_slots:
            sequence.slot = None
        self.sequences[slot] = None
        if self.stack:
            self.stack.let_go(int(self.adapters[slot]))
            self.adapters[slot] = NONE
        rules, self.rules[slot] = self.rules[slot], None
        if rules is not None:
            rules.close()

    def take_out(self, slot: int) -> Kept:
        """Take a row out of its slot, leaving a hole. The past that it has read is lost."""
        sequence = self.sequence_in(slot)
        assert self.stack is None, "the adapter of a row that leaves its slot is lost. This is a bug."
        columns = [column[slot].copy() for column in self.columns]
        kept = Kept(sequence, int(self.num_new[slot]), columns, self.rules[slot], self.tops[slot])
        self.rules[slot] = None
        self.clear(slot)
        return kept

    def put_back(self, slot: int, kept: Kept) -> None:
        """Put a row into a slot that is free. It goes on where it was when its past has been read again."""
        assert self.sequences[slot] is None, f"slot {slot} is held. This is a bug."
        for column, value in zip(self.columns, kept.columns, strict=True):
            column[slot] = value
        self.past_lengths[slot] = 0
        self.rules[slot], self.tops[slot] = kept.rules, kept.tops
        self.sequences[slot] = kept.sequence
        kept.sequence.num_slots += 1
        kept.sequence.slot = slot

    def held_by(self, sequence: Sequence) -> list[int]:
        """Return the slots that a sequence holds, ascending."""
        if sequence.width == 1:
            return [] if sequence.slot is None else [sequence.slot]
        return [slot for slot, held in enumerate(self.sequences) if held is sequence]

    def move(self, source: int, target: int) -> None:
        """Move a row into a hole. The caller moves the row's state tensors."""
        sequence = self.sequence_in(source)
        assert self.sequences[target] is None, f"slot {target} is held. This is a bug."
        for column in self.columns:
            column[target] = column[source]
        self.sequences[source] = None
        self.sequences[target] = sequence
        self.rules[source], self.rules[target] = None, self.rules[source]
        self.tops[source], self.tops[target] = [], self.tops[source]
        if sequence.slot == source:
            sequence.slot = target

    def num_shared(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return how many tokens the answers of rows begin with that those of other rows begin with too, pair by pair.

        The rows of a pair have equally many.
        """
        num_new = self.num_new[sources]
        longest = int(num_new.max())
        parts = self.output_ids[sources, :longest] != self.output_ids[targets, :longest]
        # Behind its last token a row holds anything.
        first = np.where(parts.any(axis=1), parts.argmax(axis=1), longest) if longest else num_new
        shared: np.ndarray = np.minimum(first, num_new)
        return shared

    def fork(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Copy what rows have produced onto other rows of their sequence. No target is a source."""
        longest = int(self.num_new[sources].max())
        self.output_ids[targets, :longest] = self.output_ids[sources, :longest]
        self.log_probs[targets, :longest] = self.log_probs[sources, :longest]
        if (self.has_rules[sources] | (self.num_top[sources] > 0)).any():
            for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
                self.tops[target] = self.tops[source].copy()
                if self.has_rules[source]:
                    self.rules[target] = self.rules_of(source).fork()

    def settings(self, start: int, stop: int) -> Settings:
        """How rows [start, stop) want their next token, as views."""
        if start:
            return self.sampling.rows(start, stop)
        # Those of a step, which come again and again.
        if stop not in self._settings:
            self._settings[stop] = self.sampling.rows(0, stop)
        return self._settings[stop]

    def check_integrity(self) -> None:
        """Raise AssertionError unless held slots are a prefix and every sequence knows its slot."""
        held = [slot for slot, sequence in enumerate(self.sequences) if sequence is not None]
        assert held == list(range(len(held))), f"slots {held} are no prefix. This is a bug."
        assert self.num_running <= len(held) <= self.num_running + 1, f"{self!r} holds {len(held)}. This is a bug."
        for slot in held:
            sequence = self.sequence_in(slot)
            places = self.held_by(sequence)
            assert slot in places, f"{sequence.request_id} does not sit in {slot}. This is a bug."
            assert len(places) == sequence.num_slots, f"{sequence.request_id} does not hold {places}. This is a bug."

    def __repr__(self) -> str:
        return f"<Slots [{self.num_running} running | {self.num_used}/{self.num_slots}]>"


def _begin(sequence: Sequence, given: Many[int] | np.ndarray) -> RowRules:
    """Begin a sequence's rules in its row."""
    decoding = sequence.text_decoding
    source = sequence.source.array if isinstance(sequence.source, Ids) else NO_IDS
    return RowRules.begin(decoding.rules, History(given, source, decoding.max_new_tokens))
