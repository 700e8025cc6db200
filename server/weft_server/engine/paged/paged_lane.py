"""A lane whose cache lies in blocks. Its step is one run: a token for every row, and pieces of prompts beside them.

A sequence takes blocks as it grows. When there is none for a row, the youngest sequence is parked: it gives its blocks
up, and begins again before anybody who is younger. So the oldest always goes on, and everybody becomes the oldest.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.engine.decode_lane import PATIENCE
from weft_server.engine.lane import Intake
from weft_server.engine.paged.paged_runner import PagedPromptPiece
from weft_server.engine.rows import Rows, slot_of
from weft_server.engine.run_shapes import DEVICE_RUN_COST
from weft_server.errors import DeadlineExpired
from weft_server.telemetry.engine_stats import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft_server.engine.lane import Take
    from weft_server.engine.paged.block_cache import BlockCache
    from weft_server.engine.paged.block_pool import PoolSize
    from weft_server.engine.paged.paged_runner import PagedRunner
    from weft_server.engine.slots import Kept, Slots
    from weft_server.sequence import Delivery, Outcome, Sequence
    from weft_server.telemetry.model_metrics import ModelMetrics


class Parked(NamedTuple):
    """A sequence that holds no blocks for a while, and its row, if it is kept."""

    sequence: Sequence
    kept: Kept | None


class PagedLane:
    """Slots, their rows, and a runner with a pool of blocks. Only its engine thread calls it, except for `gone`."""

    def __init__(
        self,
        slots: Slots,
        runner: PagedRunner,
        *,
        end_ids: tuple[int, ...],
        prefill_budget: int,
        metrics: ModelMetrics,
        block_cache: BlockCache | None = None,
    ) -> None:
        self.slots = slots
        # Sequences to drop before the next step, with their outcome. Any thread appends.
        self.gone: deque[tuple[Sequence, Outcome]] = deque()
        self.runner = runner
        self._pool = runner.pool
        self.rows = Rows(slots, runner, end_ids=end_ids, metrics=metrics)
        # From the oldest on. Each is younger than all that hold blocks.
        self.parked: deque[Parked] = deque()
        self._turns = count(1)
        # Whether the last step had too few blocks for a sequence that waits.
        self._is_short = False
        self.budget = max(prefill_budget, DEVICE_RUN_COST)
        self._metrics = metrics
        # None: nothing is kept of prompts.
        self.block_cache = block_cache

    def first_runs(self) -> Iterator[None]:
        """Run each shape once."""
        yield from self.runner.first_runs()

    @property
    def is_busy(self) -> bool:
        """Whether a step has something to do even if nothing waits."""
        return self.rows.num_held > 0 or bool(self.parked) or bool(self.gone)

    def has_room(self) -> bool:
        """Whether a waiting sequence could be taken now, if there are blocks for it. Those that are parked go first."""
        return self._num_free > 0 and not self.parked

    def is_open(self) -> bool:
        """Whether it takes waiting sequences within some steps. Otherwise other lanes need not wait for it.

        It does not in three cases: it has no slot, the last step had no blocks for the sequence that waits first, or
        the end of what it reads is more than PATIENCE steps away.
        """
        left = sum(self._num_to_read(slot) - int(self.slots.past_lengths[slot]) for slot in self._prompt_slots())
        return self.has_room() and not self._is_short and left <= PATIENCE * self._allowance()

    def usage(self) -> Usage:
        """Slots that are held, and blocks, as the tokens that they could hold. They may be one step old."""
        size = self._pool.size
        kv_used, kv_total = (number * size.block_tokens for number in (self._pool.num_held, size.num_blocks))
        return Usage(self.rows.num_held, self.slots.num_slots, kv_used, kv_total)

    def step(self, take: Take) -> list[Delivery]:
        """Drop who is gone, make room for every row's next token, and run: rows, and what prompts there is room for."""
        self._is_short = False
        self._drop_gone()
        self._drop_late()
        self._make_room()
        pieces = self._next_pieces(take)
        if pieces or self.slots.num_running:
            self._run(pieces)
        return self.rows.hand_over()

    def fail(self, outcome: Callable[[], Exception]) -> list[Delivery]:
        """End everything after a failed step, each sequence with an outcome of its own."""
        self.rows.fail(outcome)
        while self.parked:
            self.rows.end_parked(*self.parked.popleft(), outcome())
        if self.block_cache:
            self.block_cache.clear()
        return self.rows.hand_over()

    @property
    def _num_free(self) -> int:
        return self.slots.num_slots - self.rows.num_held

    @property
    def _num_spare(self) -> int:
        """Blocks that are free, and not promised to the other rows of prompts in prefill: these copy the last one."""
        promised = 0
        for prompt in self.rows.prompts:
            is_partial = self._num_to_read(slot_of(prompt)) % self._pool.size.block_tokens > 0
            promised += is_partial * (len(prompt.ranks_left) - 1)
        return self._pool.num_free - promised

    def _drop_gone(self) -> None:
        while self.gone:
            self._drop(*self.gone.popleft())

    def _drop_late(self) -> None:
        """End those whose deadline has passed and who are not among the rows. Of a row, its next token tells."""
        now = time.monotonic()
        for sequence in [*self.rows.prompts, *(parked.sequence for parked in self.parked)]:
            if sequence.deadline < now:
                self._drop(sequence, DeadlineExpired())

    def _drop(self, sequence: Sequence, outcome: Outcome) -> None:
        self._forget(sequence)
        parked = next((each for each in self.parked if each.sequence is sequence), None)
        if parked is None:
            self.rows.drop(sequence, outcome)
        else:
            self.parked.remove(parked)
            self.rows.end_parked(*parked, outcome)

    def _make_room(self) -> None:
        """Give every row a place for its next token. While there is none, the youngest sequence gives up its blocks."""
        while len(full := self._full_rows()) > self._num_spare:
            held = {sequence for sequence in self.slots.sequences if sequence is not None}
            assert len(held) > 1, "blocks are too few for one sequence alone. This is a bug."
            self._park(max(held, key=lambda sequence: sequence.turn))
        for slot in full:
            self.runner.grow(slot, int(self.slots.past_lengths[slot]) + 1)

    def _full_rows(self) -> list[int]:
        """Rows whose next token needs a block more."""
        pasts = self.slots.past_lengths[: self.slots.num_running]
        full: list[int] = np.flatnonzero(pasts % self._pool.size.block_tokens == 0).tolist()
        return [slot for slot in full if self._pool.lacks(slot, int(pasts[slot]) + 1)]

    def _park(self, sequence: Sequence) -> None:
        self._forget(sequence)
        self.parked.appendleft(Parked(sequence, self.rows.park(sequence)))
        self._metrics.preemptions.inc()

    def _forget(self, sequence: Sequence) -> None:
        if self.block_cache:
            self.block_cache.forget(sequence)

    def _next_pieces(self, take: Take) -> list[PagedPromptPiece]:
        """Return the pieces of prompts that this step reads. All but the last one end."""
        left = self._allowance()
        pieces: list[PagedPromptPiece] = []
        while left > 0 and (slot := self._next_prompt(len(pieces), take, left)) is not None:
            done = int(self.slots.past_lengths[slot])
            token_ids = self._tokens_of(slot)[done : done + left]
            pieces.append(PagedPromptPiece(slot, token_ids, done + len(token_ids) == self._num_to_read(slot)))
            left -= len(token_ids)
        return pieces

    def _allowance(self) -> int:
        """Tokens of prompts that a step may read: as many as a run may have, or fewer while somebody watches."""
        most = self.runner.largest_piece
        return min(self.budget, most) if self.rows.is_watched() else most

    def _prompt_slots(self) -> list[int]:
        return [slot_of(prompt) for prompt in self.rows.prompts]

    def _next_prompt(self, num_before: int, take: Take, budget: int) -> int | None:
        """Return the slot of a prompt to read behind so many others: one that is begun, was parked, or waits."""
        if num_before < len(self.rows.prompts):
            return slot_of(self.rows.prompts[num_before])
        if self.parked:
            if not self._may_begin(self.parked[0]):
                return None
            return self._begin(*self.parked.popleft(), again=True)
        if not self._num_free:
            return None
        for sequence in take(Intake(1, budget, room=self._num_free, fits=self._fits)):
            sequence.turn = next(self._turns)
            return self._begin(sequence)
        return None

    def _may_begin(self, parked: Parked) -> bool:
        """Whether a sequence that is parked may begin again.

        What begins anew loses all that it has produced. So it waits until all that is older leaves it what it may need,
        whatever they grow to: this cannot happen to it again.
        """
        size = self._pool.size
        if parked.kept is not None:
            num_tokens = parked.sequence.num_input_tokens + parked.kept.num_new
            return self._may_take(parked.sequence, num_tokens)
        held = {sequence for sequence in self.slots.sequences if sequence is not None}
        return sum(_most(sequence, size) for sequence in [*held, parked.sequence]) <= size.num_blocks

    def _fits(self, sequence: Sequence) -> bool:
        """Whether there are blocks for a sequence that waits to begin with."""
        size = self._pool.size
        most = _most(sequence, size)
        assert most <= size.num_blocks, f"{sequence.request_id} can never have its {most} blocks. This is a bug."
        self._is_short = not self._may_take(sequence, sequence.num_input_tokens)
        return not self._is_short

    def _may_take(self, sequence: Sequence, num_tokens: int) -> bool:
        """Whether there are blocks to begin with for a sequence that has so many tokens to read.

        Those that are kept of its prompt it takes from nobody. They are looked for only where that decides.
        """
        short = _to_begin(sequence, num_tokens, self._pool.size) - self._num_spare
        if short > 0 and self.block_cache:
            short -= self.block_cache.num_known(sequence, num_tokens)
        return short <= 0

    def _begin(self, sequence: Sequence, kept: Kept | None = None, *, again: bool = False) -> int:
        slot = self.rows.begin_prompt(sequence, kept)
        num_to_read = self._num_to_read(slot)
        if self.block_cache:
            self.block_cache.begin(sequence, slot, num_to_read, again=again)
        self.runner.grow(slot, num_to_read)
        return slot

    def _num_to_read(self, slot: int) -> int:
        """How many tokens a prompt in prefill has, with those that its row had produced before it was parked."""
        return self.slots.sequence_in(slot).num_input_tokens + int(self.slots.num_new[slot])

    def _tokens_of(self, slot: int) -> np.ndarray:
        source = self.slots.sequence_in(slot).source
        return np.concatenate([source.array, self.slots.output_ids[slot, : self.slots.num_new[slot]]])

    def _run(self, pieces: list[PagedPromptPiece]) -> None:
        num_rows = self.slots.num_running
        started = time.monotonic()
        padded, candidates = self.runner.run(num_rows, pieces)
        if num_rows:
            self._metrics.decode_step.observe(time.monotonic() - started)
            self._metrics.decode_batch_size.observe(num_rows)
        num_read = sum(len(piece.token_ids) for piece in pieces)
        self._metrics.computed_tokens.inc(padded)
        self._metrics.padding_tokens.inc(padded - num_read)
        if self.block_cache:
            self._keep(self.block_cache, pieces)
        # Of which row of the run each row of the lane has its next token.
        origins = list(range(num_rows))
        for row, piece in enumerate(pieces, num_rows):
            if piece.ends:
                origins += [row] * self.rows.end_prompt()
        if origins:
            self.rows.advance(candidates.picked(np.array(origins)))

    def _keep(self, cache: BlockCache, pieces: list[PagedPromptPiece]) -> None:
        """Keep what a run has read of prompts. Their slots are still those of the pieces."""
        for piece in pieces:
            sequence = self.slots.sequence_in(piece.slot)
            cache.keep(sequence, piece.slot)
            if piece.ends:
                cache.forget(sequence)


def _most(sequence: Sequence, size: PoolSize) -> int:
    """Return how many blocks a sequence may hold when all of its rows that have not ended are at their ends."""
    return size.most(sequence.num_input_tokens, sequence.text_decoding.max_new_tokens, len(sequence.ranks_left))


def _to_begin(sequence: Sequence, num_tokens: int, size: PoolSize) -> int:
    """Return how many blocks must be free before a sequence begins that has so many tokens to read."""
    return size.to_begin(num_tokens, len(sequence.ranks_left), _most(sequence, size))
