"""A lane that decodes: one thread's slots, and the step that moves all of them one token on."""

from __future__ import annotations

import time
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np

from weft_server.encoder_runs import RUN_COST, computed_tokens, runs_of
from weft_server.errors import DeadlineExpired
from weft_server.runner import PREFILL_BUCKETS
from weft_server.sampler import sample
from weft_server.sequence import Delivery, FinishReason, StepFailed, Usage

if TYPE_CHECKING:
    from weft_server.metrics import ModelMetrics
    from weft_server.runner import DecodeRunner
    from weft_server.sampler import Candidates
    from weft_server.sequence import Outcome, Sequence
    from weft_server.slots import Slots

# Tokens of encode and prefill work in a step of a lane in which nobody waits for the next token.
UNWATCHED_BUDGET = 512
# An encoder's run costs as much as 8 to 25 tokens by itself, an empty row little. So sources are admitted in company:
# one more for each so many rows, at most so many (short ones fit into a step). The lane waits for them until PATIENCE
# steps after its last admission where slots are short, else one.
ROWS_FOR_COMPANY, MAX_COMPANY = 6, 8
PATIENCE = 6  # and so many steps other lanes wait for one that reads a prompt and holds fewer rows


class Take(Protocol):
    """How a lane asks the scheduler for waiting sequences: up to `num` of `budget` input tokens."""

    def __call__(self, num: int, budget: int, *least: int) -> list[Sequence]:
        """Take them; see Scheduler.take_for_slots for `least`."""


class DecodeLane:
    """Slots, a runner, and at most one prompt in prefill. Only its engine thread calls it, except for `gone`."""

    def __init__(
        self,
        slots: Slots,
        runner: DecodeRunner,
        *,
        start_id: int | None,
        end_ids: tuple[int, ...],
        prefill_budget: int,
        metrics: ModelMetrics,
    ) -> None:
        self.slots = slots
        # Sequences to drop before the next step, with their outcome; appended by any thread.
        self.gone: deque[tuple[Sequence, Outcome]] = deque()
        self._runner, self._start_id = runner, start_id
        self._end_ids = np.array(end_ids, np.int64)
        self._budget, self._metrics = prefill_budget, metrics
        self._prompt: Sequence | None = None  # in prefill, in slot num_running
        self._deliveries: list[Delivery] = []
        self._last_token = 0.0
        self._num_young = 0  # rows whose first or second token the last advance made
        self._num_held_off = 0  # steps since the last admission

    @property
    def is_busy(self) -> bool:
        """Whether a step has something to do even if nothing waits."""
        return self.slots.num_running > 0 or self._prompt is not None or bool(self.gone)

    def has_room(self) -> bool:
        """Whether a waiting sequence could get a slot now."""
        return self.slots.num_running + (self._prompt is not None) < self.slots.num_slots

    def is_open(self) -> bool:
        """Whether it takes who waits within some steps: not while it is full, or reads a long prompt bit by bit."""
        if self._prompt is None:
            return self.has_room()
        left = len(self._prompt.inputs) - int(self.slots.past_lengths[self.slots.num_running])
        return left <= PATIENCE * max(self._allowance(), PREFILL_BUCKETS[0])

    def usage(self) -> Usage:
        """Slots and cache entries held; may be one step old."""
        slots = self.slots
        used = slots.num_running + (self._prompt is not None)
        return Usage(used, slots.num_slots, int(slots.past_lengths[:used].sum()), self._runner.kv_capacity)

    def step(self, take: Take) -> list[Delivery]:
        """Drop who is gone, admit who waits, decode every running row by one token; what there is to hand over."""
        self._drop_gone()
        prompt = None
        if self._runner.mixes and self._is_watched():
            prompt = self._beside(take)
        elif self._start_id is None:
            self._prefill(take)
        else:
            self._encode(take, self._start_id)
        if self.slots.num_running:
            self._decode(prompt)
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def fail(self, error: Exception) -> list[Delivery]:
        """End everything with `error` after a failed step; the lane is empty and usable afterwards."""
        held = [sequence for sequence in self.slots.sequences if sequence is not None]
        for sequence in held:
            sequence.num_output_tokens = int(self.slots.num_new[_slot(sequence)])
            self.slots.clear(_slot(sequence))
        self.slots.num_running, self._prompt = 0, None
        deliveries, self._deliveries = self._deliveries, []
        return deliveries + [Delivery(sequence, [], [], StepFailed(error)) for sequence in held]

    def _drop_gone(self) -> None:
        while self.gone:
            sequence, outcome = self.gone.popleft()
            if sequence.slot is not None:
                self._end(sequence.slot, outcome)

    def _encode(self, take: Take, start_id: int) -> None:
        """Admit sequences whose input an encoder reads; each starts with `start_id` in this very step."""
        slots = self.slots
        taken = take(slots.num_slots - slots.num_running, self._allowance(), self._company())
        self._num_held_off = 0 if taken else self._num_held_off + 1
        runs = runs_of(taken)
        # All sit down before anything runs, so that a failed run leaves nobody standing.
        for sequence in chain.from_iterable(runs):
            slots.place(slots.num_running, sequence)
            slots.input_ids[slots.num_running] = start_id
            slots.memory_lengths[slots.num_running] = sequence.num_input_tokens
            slots.num_running += 1
        for run in runs:
            for sequence in run:
                self._runner.begin(_slot(sequence))
            self._runner.encode([sequence.inputs for sequence in run], [_slot(sequence) for sequence in run])
            self._count_computed(computed_tokens(run), sum(sequence.num_input_tokens for sequence in run))

    def _company(self) -> int:
        """How many should be admitted together in this step; nobody waits beside a stream, or long beside few rows."""
        num_running, num_slots = self.slots.num_running, self.slots.num_slots
        patience = PATIENCE if 4 * num_running >= 3 * num_slots else 1
        if self._is_watched() or self._num_held_off >= patience:
            return 1
        return min(1 + num_running // ROWS_FOR_COMPANY, MAX_COMPANY)

    def _prefill(self, take: Take) -> None:
        """Read prompts in chunks, one prompt at a time, until the step's allowance is spent, but at least one chunk."""
        left = max(self._allowance(), PREFILL_BUCKETS[0])
        while left >= PREFILL_BUCKETS[0] and self._next_prompt(take, left):
            left -= self._prefill_chunk(left) + RUN_COST

    def _beside(self, take: Take) -> tuple[np.ndarray, bool] | None:
        """The chunk of a prompt that this step's decode run reads beside its rows; none if no prompt is here.

        Eight tokens beside 8 to 32 rows make the run 1.1 to 1.4 times as long. A graph has room for one prompt.
        """
        left = max(self._budget, self.slots.num_running // 2)
        return self._chunk(left) if self._next_prompt(take, left) else None

    def _allowance(self) -> int:
        """Tokens of encode and prefill work in this step, for which its rows wait.

        A row whose caller sees only the whole answer gains by full steps and notices no gap. One that hands over each
        token does. A run costs as much by itself as the decode run, because both read all weights, and a prompt's token
        less than a row's, which also has the vocabulary: with one run of three tokens for two rows a step takes less
        than twice as long.
        """
        enough = self.slots.num_running * 3 // 2 if self._is_watched() else UNWATCHED_BUDGET
        return max(self._budget, enough)

    def _is_watched(self) -> bool:
        """Whether somebody is given each token of a row as it comes."""
        return bool(self.slots.wants_tokens[: self.slots.num_running].any())

    def _next_prompt(self, take: Take, budget: int) -> bool:
        if self._prompt is None and self.has_room():
            for sequence in take(1, budget):
                self.slots.place(self.slots.num_running, sequence)
                self._prompt = sequence
                self._runner.begin(self.slots.num_running)
        return self._prompt is not None

    def _prefill_chunk(self, left: int) -> int:
        """Run a chunk of the prompt, of `left` tokens or a little more; after its last one the row runs.

        Where a prompt is cut depends on the load. Its bits do not, as long as a run reads two tokens or more.
        """
        slot, (chunk, ends) = self.slots.num_running, self._chunk(left)
        padded, candidates = self._runner.prefill(slot, chunk)
        self._count_computed(padded, len(chunk))
        if ends:
            self._start_row()
            self._advance(slot, slot + 1, candidates)
        return padded

    def _chunk(self, left: int) -> tuple[np.ndarray, bool]:
        """The next tokens of the prompt, and whether it ends with them."""
        assert self._prompt is not None
        done, inputs = int(self.slots.past_lengths[self.slots.num_running]), self._prompt.inputs
        chunk = inputs[done : done + self._runner.chunk(left)]
        return chunk, done + len(chunk) == len(inputs)

    def _start_row(self) -> None:
        """Let the prompt's row run: its last token has been read."""
        self._prompt = None
        self.slots.num_running += 1

    def _decode(self, prompt: tuple[np.ndarray, bool] | None) -> None:
        """One token for every running row; a prompt's chunk, if there is one, is read in the same run."""
        num_rows = self.slots.num_running
        started = time.monotonic()
        if prompt is None:
            candidates = self._runner.decode(num_rows)
        else:
            chunk, ends = prompt
            padded, candidates = self._runner.mixed(num_rows, chunk, ends=ends)
            self._count_computed(padded, len(chunk))
            if ends:
                self._start_row()
        self._metrics.decode_step.observe(time.monotonic() - started)
        self._metrics.decode_batch_size.observe(num_rows)
        num_rows = self.slots.num_running
        now = self._advance(0, num_rows, candidates)
        # The others had their token of before from the last decode run.
        if num_rows > self._num_young:
            self._metrics.inter_token_latency.observe(now - self._last_token, num_rows - self._num_young)
        self._last_token = now

    def _advance(self, start: int, stop: int, candidates: Candidates) -> float:
        """Give rows [start, stop) their next token, hand over what streams and what ended; the time of the tokens."""
        slots = self.slots
        ids, log_probs = sample(candidates, slots.settings(start, stop), self._end_ids)
        rows, num_new = np.arange(start, stop), slots.num_new[start:stop]
        slots.output_ids[rows, num_new] = ids
        slots.log_probs[rows, num_new] = log_probs
        slots.input_ids[start:stop, 0] = ids
        num_new += 1
        self._metrics.generated_tokens.inc(stop - start)
        now = time.monotonic()
        young = np.flatnonzero(num_new <= 2)
        self._num_young = len(young)
        for row in young.tolist():
            times = self._sequence(start + row).times
            if num_new[row] == 1:
                times.first_token = now
            else:  # whose first token a prefill run may have made, in this very step
                self._metrics.inter_token_latency.observe(now - times.first_token)
        at_end = (ids[:, None] == self._end_ids).any(axis=1)
        done = at_end | (num_new >= slots.max_new[start:stop]) | (slots.deadline[start:stop] < now)
        for row in np.flatnonzero(slots.wants_tokens[start:stop] & ~done).tolist():
            token = [int(ids[row])], [float(log_probs[row])]
            self._deliveries.append(Delivery(self._sequence(start + row), *token, None))
        # From the last row down: ending one moves the last running row into its place.
        for row in np.flatnonzero(done)[::-1].tolist():
            self._end(start + row, self._outcome(start + row, bool(at_end[row])))
        return now

    def _outcome(self, slot: int, at_end: bool) -> Outcome:  # noqa: FBT001 - a fact of the row, not a mode
        if at_end:
            return FinishReason.STOP
        if self.slots.num_new[slot] >= self.slots.max_new[slot]:
            return FinishReason.LENGTH
        return DeadlineExpired()

    def _end(self, slot: int, outcome: Outcome) -> None:
        """Hand over a row's end and close the hole it leaves."""
        slots, sequence = self.slots, self._sequence(slot)
        num_new = sequence.num_output_tokens = int(slots.num_new[slot])
        # A row that streams has been given all but this step's token, and that only if this step made one.
        start = num_new - 1 if sequence.wants_tokens else 0
        if not isinstance(outcome, FinishReason) or outcome is FinishReason.STOP_STRING:
            start = num_new
        token_ids = slots.output_ids[slot, start:num_new].tolist()
        self._deliveries.append(Delivery(sequence, token_ids, slots.log_probs[slot, start:num_new].tolist(), outcome))
        slots.clear(slot)
        if sequence is self._prompt:
            self._prompt = None
            return
        slots.num_running -= 1
        self._fill(slot, slots.num_running)
        if self._prompt is not None:
            self._fill(slots.num_running, slots.num_running + 1)

    def _fill(self, hole: int, source: int) -> None:
        if hole != source:
            self._runner.move(source, hole)
            self.slots.move(source, hole)

    def _sequence(self, slot: int) -> Sequence:
        sequence = self.slots.sequences[slot]
        assert sequence is not None, f"slot {slot} is free. This is a bug."
        return sequence

    def _count_computed(self, padded: int, real: int) -> None:
        self._metrics.computed_tokens.inc(padded)
        self._metrics.padding_tokens.inc(padded - real)


def _slot(sequence: Sequence) -> int:
    assert sequence.slot is not None, f"{sequence.request_id} has no slot. This is a bug."
    return sequence.slot
