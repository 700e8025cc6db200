"""The rows of one lane's slots: what each is given, how it ends, and how the hole that it leaves is closed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from weft_server.choosing.forced_end import force_end
from weft_server.choosing.processed import process
from weft_server.choosing.sampler import sample
from weft_server.errors import DeadlineExpired
from weft_server.sequence import Delivery, FinishReason, StepFailed
from weft_server.source import Ids

if TYPE_CHECKING:
    from weft_server.choosing.candidates import Candidates
    from weft_server.engine.runner import DecodeRunner
    from weft_server.engine.slots import Slots
    from weft_server.sequence import Outcome, Sequence
    from weft_server.telemetry.metrics import ModelMetrics


class Rows:
    """A row for each running sequence, and at most one prompt in prefill, in the slot behind them."""

    def __init__(
        self,
        slots: Slots,
        runner: DecodeRunner,
        *,
        end_ids: tuple[int, ...],
        forced_end_id: int | None = None,
        metrics: ModelMetrics,
    ) -> None:
        self.slots = slots
        # In prefill, in slot num_running.
        self.prompt: Sequence | None = None
        self._runner = runner
        self._end_ids = np.array(end_ids, np.int64)
        # The last token that a request allows. None: it is chosen as all others are.
        self._forced_end_id = forced_end_id
        self._metrics = metrics
        self._deliveries: list[Delivery] = []
        # Monotonic seconds of the tokens of the last decode run.
        self._last_token = 0.0

    @property
    def num_held(self) -> int:
        """Slots that are held: a prefix of all."""
        return self.slots.num_running + (self.prompt is not None)

    def is_watched(self) -> bool:
        """Whether somebody is given each token of a row as it comes."""
        return bool(self.slots.wants_tokens[: self.slots.num_running].any())

    def begin(self, sequence: Sequence, start_id: int) -> None:
        """Make a row of a sequence whose source an encoder will have read before the next decode run."""
        slots = self.slots
        slots.place(slots.num_running, sequence, (start_id, *sequence.prefix_ids))
        slots.input_ids[slots.num_running] = start_id
        slots.memory_lengths[slots.num_running] = sequence.num_input_tokens
        slots.num_running += 1

    def begin_prompt(self, sequence: Sequence) -> None:
        """Give a sequence the slot behind the rows, to read its prompt there."""
        assert isinstance(sequence.source, Ids), "a prompt is no ids. This is a bug."
        self.slots.place(self.slots.num_running, sequence, sequence.source.array)
        self.prompt = sequence
        self._runner.begin(self.slots.num_running)

    def end_prompt(self) -> None:
        """Make a row of the prompt: its last token has been read."""
        self.prompt = None
        self.slots.num_running += 1

    def start(self, candidates: Candidates) -> None:
        """Give the last row its first token, of the prefill run that ended its prompt."""
        self._give(self.slots.num_running - 1, candidates)

    def advance(self, candidates: Candidates) -> None:
        """Give every row its next token, of a decode run."""
        now, num_old = self._give(0, candidates)
        # These rows had their last token from the last decode run.
        if num_old:
            self._metrics.inter_token_latency.observe(now - self._last_token, num_old)
        self._last_token = now

    def drop(self, sequence: Sequence, outcome: Outcome) -> None:
        """End a sequence between two steps, unless it has ended."""
        if sequence.slot is not None:
            self._end(sequence.slot, outcome)

    def fail(self, error: Exception) -> None:
        """End everything with `error`. All slots are free afterwards."""
        for sequence in [sequence for sequence in self.slots.sequences if sequence is not None]:
            slot = slot_of(sequence)
            sequence.num_output_tokens = int(self.slots.num_new[slot])
            self.slots.clear(slot)
            self._deliveries.append(Delivery(sequence, [], [], StepFailed(error)))
        self.slots.num_running = 0
        self.prompt = None

    def hand_over(self) -> list[Delivery]:
        """What there is to hand over since the last call."""
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def _give(self, start: int, candidates: Candidates) -> tuple[float, int]:
        """Give the rows from `start` on their next token. End those that are done, and deliver those that stream.

        Returns the monotonic seconds of the tokens, and how many of them were the third or a later one of their answer.
        """
        slots = self.slots
        stop = slots.num_running
        ids, log_probs, at_end = self._choose(start, candidates)
        chosen = slots.give(start, ids, log_probs)
        num_chosen = int(np.count_nonzero(chosen))
        self._metrics.generated_tokens.inc(num_chosen)
        now = time.monotonic()
        num_young = self._note_young(start, chosen, now)

        at_end &= chosen
        done = at_end | (slots.num_new[start:stop] >= slots.max_new[start:stop]) | (slots.deadline[start:stop] < now)
        for row in np.flatnonzero(slots.wants_tokens[start:stop] & chosen & ~done).tolist():
            sequence = self._sequence(start + row)
            self._deliveries.append(Delivery(sequence, [int(ids[row])], [float(log_probs[row])], None))
        # From the last row down: ending one moves the last running row into its place.
        for row in np.flatnonzero(done)[::-1].tolist():
            self._end(start + row, self._outcome(start + row, bool(at_end[row])))
        return now, num_chosen - num_young

    def _choose(self, start: int, candidates: Candidates) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for the rows from `start` on the next token, its log-probability, and whether the model ends there."""
        slots = self.slots
        stop = slots.num_running
        # A row that is still fed its prefix chooses nothing.
        ruled = np.flatnonzero(slots.has_rules[start:stop] & (slots.prefix_left[start:stop] == 0)).tolist()
        ids, log_probs = self._pick(start, candidates, ruled)
        at_end = (ids[:, None] == self._end_ids).any(axis=1)
        if self._forced_end_id is not None:
            last = slots.num_new[start:stop] + 1 == slots.max_new[start:stop]
            scored = slots.reads_all[start:stop]
            end_id = self._forced_end_id
            at_end &= ~force_end(candidates, ids, log_probs, end_id=end_id, last=last, scored=scored)
        return ids, log_probs, at_end

    def _pick(self, start: int, candidates: Candidates, ruled: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the next token of the rows from `start` on, and its log-probability. Those of `ruled` have rules."""
        slots = self.slots
        settings = slots.settings(start, slots.num_running)
        count = self._metrics.read_whole
        if not ruled:
            return sample(candidates, settings, self._end_ids, count)
        rules = {row: slots.rules_of(start + row) for row in ruled}
        processed = process(candidates, rules, settings.temperature > 0, self._end_ids, count)
        ids, log_probs = sample(processed, settings, self._end_ids, count)
        for row in ruled:
            log_probs[row] = candidates.log_prob(row, ids[row])
        return ids, log_probs

    def _note_young(self, start: int, chosen: np.ndarray, now: float) -> int:
        """Note when an answer's first token came, and the gap before its second. Returns how many are this young."""
        num_new = self.slots.num_new[start : self.slots.num_running]
        young = np.flatnonzero(chosen & (num_new <= 2)).tolist()
        for row in young:
            times = self._sequence(start + row).times
            if num_new[row] == 1:
                times.first_token = now
            else:  # a prefill run of this very step may have made its first token
                self._metrics.inter_token_latency.observe(now - times.first_token)
        return len(young)

    def _outcome(self, slot: int, at_end: bool) -> Outcome:  # noqa: FBT001 - a fact of the row, not a mode
        """Why a row that is done ends.

        There are three cases, and the first that holds counts:

        1. Its last token is an end token.
        2. It has all the tokens that it may have.
        3. Its deadline has passed.
        """
        if at_end:
            return FinishReason.STOP
        if self.slots.num_new[slot] >= self.slots.max_new[slot]:
            return FinishReason.LENGTH
        return DeadlineExpired()

    def _end(self, slot: int, outcome: Outcome) -> None:
        """Hand over a row's end, and close the hole."""
        slots = self.slots
        sequence = self._sequence(slot)
        num_new = int(slots.num_new[slot])
        sequence.num_output_tokens = num_new
        fresh = slice(self._num_delivered(sequence, num_new, outcome), num_new)
        token_ids = slots.output_ids[slot, fresh].tolist()
        log_probs = slots.log_probs[slot, fresh].tolist()
        self._deliveries.append(Delivery(sequence, token_ids, log_probs, outcome))
        slots.clear(slot)
        self._close(slot, sequence)

    def _num_delivered(self, sequence: Sequence, num_new: int, outcome: Outcome) -> int:
        """How many of its tokens a sequence's last delivery leaves out.

        There are three cases, and the first that holds counts:

        1. It is dropped, late, or cut by a stop string: all. Its caller takes no more of them.
        2. It streams: all but the last one, which this step made.
        3. Its caller has waited for the whole answer: none.
        """
        if not isinstance(outcome, FinishReason) or outcome is FinishReason.STOP_STRING:
            return num_new
        return num_new - 1 if sequence.wants_tokens else 0

    def _close(self, hole: int, sequence: Sequence) -> None:
        """Keep held slots a prefix. The last row moves into the hole, and the prompt into that row's place."""
        if sequence is self.prompt:
            self.prompt = None
            return
        self.slots.num_running -= 1
        self._move(self.slots.num_running, hole)
        if self.prompt is not None:
            self._move(self.slots.num_running + 1, self.slots.num_running)

    def _move(self, source: int, hole: int) -> None:
        if hole != source:
            self._runner.move(source, hole)
            self.slots.move(source, hole)

    def _sequence(self, slot: int) -> Sequence:
        sequence = self.slots.sequences[slot]
        assert sequence is not None, f"slot {slot} is free. This is a bug."
        return sequence


def slot_of(sequence: Sequence) -> int:
    """Return the slot that a sequence holds."""
    assert sequence.slot is not None, f"{sequence.request_id} has no slot. This is a bug."
    return sequence.slot
