"""The rows of one lane's slots: how each begins and ends, who is told, and how the hole that it leaves is closed."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from weft_server.engine.beam_rows import BeamRows
from weft_server.engine.token_selection import TokenSelection
from weft_server.errors import DeadlineExpired
from weft_server.sequence import Delivery, FinishReason, Output
from weft_server.source import Ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.engine.pasts import Pasts
    from weft_server.engine.slots import Kept, Slots
    from weft_server.engine.token_selection import SelectedTokens
    from weft_server.errors import RequestError
    from weft_server.sampling.candidates import Candidates
    from weft_server.sequence import Outcome, Sequence
    from weft_server.telemetry.model_metrics import ModelMetrics


class Rows:
    """The rows of running sequences, one or more of each, and prompts in prefill behind them."""

    def __init__(
        self,
        slots: Slots,
        pasts: Pasts,
        *,
        end_ids: tuple[int, ...],
        metrics: ModelMetrics,
    ) -> None:
        self.slots = slots
        # In prefill, in the order in which they end. Each holds the first of the slots that it will have rows in.
        # Between two steps there is one at most.
        self.prompts: list[Sequence] = []
        # Rows of the last prompt that ended.
        self._num_begun = 1
        self.pasts = pasts
        self.metrics = metrics
        ends = np.array(end_ids, np.int64)
        self.beams = BeamRows(slots, pasts, end_ids=ends, count=metrics.read_whole)
        self.token_selection = TokenSelection(slots, self.beams, end_ids=ends, count=metrics.read_whole)
        self._deliveries: list[Delivery] = []

    @property
    def prompt(self) -> Sequence | None:
        """The one in prefill that ends first, if there is one. It holds slot num_running."""
        return self.prompts[0] if self.prompts else None

    @property
    def num_held(self) -> int:
        """Slots that are held: a prefix of all. A prompt holds as many as it will have rows, from its beginning on."""
        num_running = self.slots.num_running
        return num_running + sum(len(prompt.ranks_left) for prompt in self.prompts) if self.prompts else num_running

    def is_watched(self) -> bool:
        """Whether somebody is given each token of a row as it comes."""
        return bool(np.count_nonzero(self.slots.wants_tokens[: self.slots.num_running]))

    def begin(self, sequence: Sequence, start_id: int) -> None:
        """Make rows of a sequence whose source an encoder will have read before the next decode run. See `spread`."""
        slots, first = self.slots, self.slots.num_running
        given = (start_id, *sequence.prefix_ids)
        for rank in range(sequence.width):
            slots.place(slots.num_running, sequence, given, rank)
            slots.input_ids[slots.num_running] = start_id
            slots.memory_lengths[slots.num_running] = sequence.source.num_places
            slots.past_lengths[slots.num_running] = self.pasts.num_begun(sequence.source)
            slots.num_running += 1
        self._begin_search(sequence, first)

    def spread(self, sequence: Sequence) -> None:
        """Copy what has been read of a sequence that has just begun from its first row to its others."""
        if sequence.width > 1:
            first = slot_of(sequence)
            for slot in range(first + 1, first + sequence.width):
                self.pasts.share(first, slot)
                self.slots.follow(first, slot)

    def begin_prompt(self, sequence: Sequence, kept: Kept | None = None) -> int:
        """Give a sequence the slot behind all that are held, to read its prompt there. Its other slots are kept free.

        One that was parked goes on with the row that was `kept`. Returns the slot.
        """
        slot = self.num_held
        if kept is None:
            self.slots.place(slot, sequence, _prompt_of(sequence), sequence.ranks_left[0])
        else:
            self.slots.put_back(slot, kept)
        self.prompts.append(sequence)
        self.pasts.begin(slot)
        return slot

    def end_prompt(self) -> int:
        """Make rows of the prompt: its last token has been read. All begin with what the first one holds.

        Returns how many there are.
        """
        assert self.prompts, "no prompt has ended. This is a bug."
        sequence = self.prompts.pop(0)
        slots, first = self.slots, self.slots.num_running
        for slot, rank in enumerate(sequence.ranks_left[1:], first + 1):
            slots.place(slot, sequence, _prompt_of(sequence), rank)
            self.pasts.share(first, slot)
            slots.past_lengths[slot] = slots.past_lengths[first]
        sequence.source = sequence.source.once_read
        self._num_begun = len(sequence.ranks_left)
        slots.num_running += self._num_begun
        self._begin_search(sequence, first)
        return self._num_begun

    def park(self, sequence: Sequence) -> Kept | None:
        """Take a sequence out of its slots. It ends later, or begins again with what is returned.

        The row of a sequence that has one is kept. Several rows, and searches, begin anew: nobody has been given any of
        their tokens. Answers of rows that have ended stay.
        """
        if not sequence.keeps_its_row:
            num_before = sequence.num_output_tokens
            self._free_all(sequence)
            # What these rows had produced is produced again.
            self.metrics.wasted_tokens.inc(sequence.num_output_tokens - num_before)
            sequence.num_output_tokens = num_before
            return None
        slot = slot_of(sequence)
        kept = self.slots.take_out(slot)
        self._close(slot, sequence)
        return kept

    def end_parked(self, sequence: Sequence, kept: Kept | None, outcome: Outcome) -> None:
        """End a sequence that was parked."""
        if kept is not None:
            sequence.num_output_tokens += kept.num_new
            kept.close()
        self._deliver_end(sequence, outcome)

    def start(self, candidates: Candidates, num_prompts: int = 1) -> None:
        """Give the rows of the prompt that has ended their first token, of the prefill run that ended it.

        Of several prompts that have ended, each has one row.
        """
        num_begun = self._num_begun if num_prompts == 1 else num_prompts
        self._give(self.slots.num_running - num_begun, candidates)

    def advance(self, candidates: Candidates) -> None:
        """Give every row its next token, of a decode run."""
        self._give(0, candidates)

    def verify(self, drafts: np.ndarray, candidates: Candidates) -> int:
        """Give the last row the tokens of a run that has read drafts, and what follows those that are right.

        drafts is int64 [n]. candidates are [rows + n, ...]: of the rows before, which `advance_before` gives theirs,
        then behind the input id and behind each draft. Each token is chosen as in a step of its own: by the row's
        settings, its rules and its draw for this place. A draft is right if it is that token. Returns how many were
        right.
        """
        slots, now = self.slots, time.monotonic()
        row, num_given = slots.num_running - 1, 0
        start = float(slots.last_token[row])
        while True:
            # What lies behind has been read in vain, if a draft is wrong, and is overwritten.
            slots.past_lengths[row] += 1
            given = self.token_selection.give(row, candidates.picked(np.array([row + num_given])))
            self.metrics.generated_tokens.inc(int(given.chosen[0]))
            num_given += 1
            slots.last_token[row] = now
            self.hand_out(row, given, now)
            if slots.num_running == row or num_given > len(drafts) or given.ids[0] != drafts[num_given - 1]:
                break
        # They came together, after the time of one run.
        self.metrics.inter_token_latency.observe((now - start) / num_given, num_given)
        return num_given - 1

    def advance_before(self, num_rows: int, candidates: Candidates) -> None:
        """Give the first rows their next token, of a run that read drafts of the row behind them: see `verify`.

        That row has been given its tokens, and may have ended. No prompt may be in prefill.
        """
        slots = self.slots
        goes_on = slots.num_running > num_rows
        # For now it is none of those that run.
        slots.num_running = num_rows
        self._give(0, candidates.picked(np.arange(num_rows)))
        if goes_on:
            self._move(num_rows, slots.num_running)
            slots.num_running += 1

    def drop(self, sequence: Sequence, outcome: Outcome) -> None:
        """End all rows of a sequence between two steps, unless it has ended. Its caller takes no more of its tokens."""
        if sequence.num_slots:
            self._free_all(sequence)
            self._deliver_end(sequence, outcome)

    def fail(self, outcome: Callable[[], Exception]) -> None:
        """End everything, each sequence with an outcome of its own. All slots are free afterwards."""
        slots = self.slots
        ended: dict[Sequence, None] = {}
        for slot, sequence in enumerate(slots.sequences):
            if sequence is not None:
                sequence.num_output_tokens += int(slots.num_new[slot])
                slots.clear(slot)
                self.pasts.end(slot)
                ended[sequence] = None
        for sequence in ended:
            self._deliver_end(sequence, outcome())
        slots.num_running = 0
        self.prompts.clear()
        self.beams.clear()

    def hand_over(self) -> list[Delivery]:
        """What there is to hand over since the last call."""
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def _give(self, start: int, candidates: Candidates) -> None:
        """Give the rows from `start` on their next token. End those that are done, and deliver those that stream."""
        candidates = candidates.stretched(self.slots.num_running - start)
        given = self.token_selection.give(start, candidates)
        self.metrics.generated_tokens.inc(int(np.count_nonzero(given.chosen)))
        now = time.monotonic()
        self._note_times(start, given.chosen, now)
        self.hand_out(start, given, now)

    def hand_out(self, start: int, given: SelectedTokens, now: float) -> None:
        """Deliver what the rows from `start` on have been given to those that stream, and end those that are done."""
        slots = self.slots
        stop = slots.num_running
        done = given.at_end | (slots.num_new[start:stop] >= slots.max_new[start:stop])
        late = slots.deadline[start:stop] < now
        if given.special:
            done &= ~slots.is_beam[start:stop]
            done[given.missing] = True
        if given.refused:
            done[list(given.refused)] = False
            late[list(given.refused)] = True
        going = ~done
        # Looked up before any row moves.
        dropped: list[tuple[Sequence, RequestError | None]] = []
        if np.count_nonzero(late):
            rows = np.flatnonzero(late & going)[::-1].tolist()
            dropped = [(self.slots.sequence_in(start + row), given.refused.get(row)) for row in rows]
            going &= ~late
        for row in (slots.wants_tokens[start:stop] & given.chosen & going).nonzero()[0].tolist():
            sequence = self.slots.sequence_in(start + row)
            tops = slots.tops[start + row][-1:]
            token_ids, log_probs = [int(given.ids[row])], [float(given.log_probs[row])]
            self._deliveries.append(Delivery(sequence, token_ids, log_probs, None, tops=tops))
        # From the last row down: ending one moves the last running row into its place.
        for row in done.nonzero()[0][::-1].tolist():
            if not given.chosen[row]:
                self._end_missing(start + row)
            else:
                self._end(start + row, FinishReason.STOP if given.at_end[row] else FinishReason.LENGTH)
        self._end_searches(given)
        for sequence, refusal in dropped:
            self.drop(sequence, refusal or DeadlineExpired())

    def _end_searches(self, given: SelectedTokens) -> None:
        """End the searches that were done in this step."""
        for sequence, outputs in given.found:
            if isinstance(outputs, list):
                self._free_all(sequence)
                self.deliver_outputs(sequence, outputs, num_freed=sequence.width)
            else:
                self.drop(sequence, outputs)

    def _note_times(self, start: int, chosen: np.ndarray, now: float) -> None:
        """Note when the rows from `start` on were given a token, and how long that was after the one before."""
        rows = slice(start, self.slots.num_running)
        num_new, last_token = self.slots.num_new[rows], self.slots.last_token[rows]
        for row in (chosen & (num_new == 1)).nonzero()[0].tolist():
            self.slots.sequence_in(start + row).times.first_token = now
        befores = last_token[chosen & (num_new > 1)].tolist()
        # Mostly all rows had it from the same run. To count one by one takes longer.
        if befores and befores.count(befores[0]) == len(befores):
            self.metrics.inter_token_latency.observe(now - befores[0], len(befores))
        else:
            for before, count in Counter(befores).items():
                self.metrics.inter_token_latency.observe(now - before, count)
        last_token[chosen] = now

    def _end(self, slot: int, reason: FinishReason) -> None:
        """End a row that is done, hand its answer over, and close the hole.

        The answer of one of several rows waits for the others. Its slot does not.
        """
        slots = self.slots
        sequence = self.slots.sequence_in(slot)
        num_new = int(slots.num_new[slot])
        sequence.num_output_tokens += num_new
        # All but its last token have been given to who streams.
        fresh = slice(num_new - 1 if sequence.wants_tokens else 0, num_new)
        token_ids, log_probs = slots.output_ids[slot, fresh].tolist(), slots.log_probs[slot, fresh].tolist()
        rank, tops = int(slots.rank[slot]), slots.tops[slot][fresh]
        plain = slots.decoding_of(slot).is_plain
        self._free(slot, sequence)
        if plain:
            self._deliveries.append(Delivery(sequence, token_ids, log_probs, reason, num_freed=1, tops=tops))
            return
        self._leave(sequence, rank, Output(token_ids, log_probs, reason, tops=tops))

    def _end_missing(self, slot: int) -> None:
        """End a row that began no answer."""
        sequence, rank = self.slots.sequence_in(slot), int(self.slots.rank[slot])
        self._free(slot, sequence)
        self._leave(sequence, rank, None)

    def _leave(self, sequence: Sequence, rank: int, output: Output | None) -> None:
        """Keep what one of several rows has ended with. With the last one, hand all over, best first."""
        sequence.outputs[rank] = output
        if sequence.num_slots:
            self._deliveries.append(Delivery(sequence, [], [], None, num_freed=1))
        else:
            ranked = (sequence.outputs[rank] for rank in range(sequence.width))
            self.deliver_outputs(sequence, [each for each in ranked if each is not None], num_freed=1)

    def deliver_outputs(self, sequence: Sequence, outputs: list[Output], num_freed: int) -> None:
        """Hand over all answers of a sequence that is not plain, best first."""
        best = outputs[0]
        self._deliveries.append(
            Delivery(
                sequence,
                best.token_ids,
                best.log_probs,
                best.reason,
                outputs=outputs,
                num_freed=num_freed,
                tops=best.tops,
            )
        )

    def _deliver_end(self, sequence: Sequence, outcome: Outcome) -> None:
        """Hand over the end of a sequence that gets no answer. Slots of rows that had ended were free before."""
        num_freed = sequence.width - len(sequence.outputs)
        self._deliveries.append(Delivery(sequence, [], [], outcome, num_freed=num_freed))

    def _begin_search(self, sequence: Sequence, first: int) -> None:
        if sequence.decoding is not None and sequence.decoding.beams:
            self.beams.begin(sequence, first)

    def _free_all(self, sequence: Sequence) -> None:
        """Free all slots of a sequence."""
        self.beams.remove(sequence)
        # From the last one down: what moves into the hole of one is no later one.
        for slot in reversed(self.slots.held_by(sequence)):
            sequence.num_output_tokens += int(self.slots.num_new[slot])
            self._free(slot, sequence)

    def _free(self, hole: int, sequence: Sequence) -> None:
        """Free a slot. The last row moves into it, and the prompt into that row's place: held slots stay a prefix."""
        self.slots.clear(hole)
        self._close(hole, sequence)

    def _close(self, hole: int, sequence: Sequence) -> None:
        """Close the hole that a row of a sequence, or its prompt, has left."""
        self.pasts.end(hole)
        if sequence in self.prompts:
            self.prompts.remove(sequence)
            return
        self.slots.num_running -= 1
        self._move(self.slots.num_running, hole)
        if self.prompts:
            self._move(self.slots.num_running + 1, self.slots.num_running)

    def _move(self, source: int, hole: int) -> None:
        if hole != source:
            self.pasts.move(source, hole)
            self.slots.move(source, hole)


def slot_of(sequence: Sequence) -> int:
    """Return the slot that a sequence holds."""
    assert sequence.slot is not None, f"{sequence.request_id} has no slot. This is a bug."
    return sequence.slot


def _prompt_of(sequence: Sequence) -> np.ndarray:
    assert isinstance(sequence.source, Ids), "a prompt is no ids. This is a bug."
    return sequence.source.array
