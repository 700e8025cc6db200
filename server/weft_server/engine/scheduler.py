"""Who runs next: bounded waiting, and fair shares to lanes. Pure policy: no arrays, no clock, no locks."""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from weft_server.errors import Overloaded
from weft_server.source import SHORT

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.sequence import Sequence


class Scheduler:
    """A bounded waiting room and the number of slots each lane holds.

    A sequence takes as many slots as it is wide, all at once. One that finds too few of them waits at the head of the
    queue, and nobody overtakes it. So it has its slots as soon as so many of the lane's rows have ended.

    A place is reserved before a request is tokenized, so that nothing is computed for a request that is then refused.
    A sequence that was promised a place takes it when it comes, also beyond the bounds: then nothing new is let in.
    """

    def __init__(self, num_lanes: int, max_queued_requests: int, max_queued_tokens: int) -> None:
        self.waiting: deque[Sequence] = deque()
        self.queued_tokens = 0
        # Slots that those who wait will take.
        self._queued_slots = 0
        self.num_reserved = 0
        self.loads = [0] * num_lanes
        # Lanes that are full or read a long prompt. They take nothing for a while, so no other lane waits for them to.
        self.closed: set[int] = set()
        self.max_requests = max_queued_requests
        self._max_tokens = max_queued_tokens

    @property
    def num_queued(self) -> int:
        """Requests that wait, being tokenized or ready."""
        return self.num_reserved + len(self.waiting)

    def check_open(self) -> None:
        """Raise Overloaded when a bound is reached. Who is let in may be promised a place."""
        self._check_places(1)
        self._check_tokens(1)

    def reserve(self, count: int = 1) -> None:
        """Take places in the waiting room, all or none. Raises Overloaded when there are not so many."""
        self._check_places(count)
        self.num_reserved += count

    def release(self, count: int = 1) -> None:
        """Give reserved places back."""
        self.num_reserved -= count

    def enqueue(self, *sequences: Sequence, is_promised: bool = False) -> None:
        """Turn reserved places into waiting sequences, all or none. Promised ones need no places.

        Raises:
            Overloaded: the token bound is reached. The places are kept.
        """
        num_tokens = sum(sequence.num_input_tokens for sequence in sequences)
        # One that is too long for the bound may wait alone. Otherwise it would never be answered.
        is_only = not self.waiting and len(sequences) == 1
        if not (is_only or is_promised):
            self._check_tokens(num_tokens)
        if not is_promised:
            self.num_reserved -= len(sequences)
        self.queued_tokens += num_tokens
        self._queued_slots += sum(sequence.width for sequence in sequences)
        self.waiting.extend(sequences)

    def remove(self, sequence: Sequence) -> bool:
        """Take a sequence out of the waiting room. Returns False when it does not wait."""
        if sequence.lane is not None or sequence not in self.waiting:
            return False
        self.waiting.remove(sequence)
        self._leave(sequence)
        return True

    def may_take(self, lane: int) -> bool:
        """Whether `lane` should take from the waiting room now: a sequence waits, and no open lane holds fewer."""
        return bool(self.waiting) and self.loads[lane] <= min(self._loads_beside(lane))

    def take(
        self, lane: int, *, most: int, budget: int, room: int | None = None, least: int = 1, alike: bool = False
    ) -> list[Sequence]:
        """Hand waiting sequences to `lane`: at most `most`, of `budget` padded input tokens together.

        Together they are no wider than `room`, the lane's free slots. Without it, each takes one of `most` places.
        The first one may cost more than the budget. Otherwise a sequence that is too long for it would wait forever.

        There are two cases:

        1. `alike`: a batch. The oldest sequence, and those of its padded length in the order of their arrival.
        2. Otherwise: first come, first served. The lane takes its even share of what it holds, what open lanes hold,
           and what waits. It takes `least` in a row at least, so that they stay together. If it could take fewer, it
           takes none. A stream or a long input among the first ones is an exception: it gains nothing by company, so
           they are taken.
        """
        if alike:
            return self._take_alike(lane, most, budget)
        return self._take_share(lane, most, most if room is None else room, budget, least)

    def free(self, lane: int, num_slots: int = 1) -> None:
        """Count slots of a lane that are free again."""
        self.loads[lane] -= num_slots
        assert self.loads[lane] >= 0, f"lane {lane} freed more than it took. This is a bug."

    def _check_places(self, count: int) -> None:
        if self.num_queued + count > self.max_requests:
            wanted = f", and {count} more do not fit" if count > 1 else ""
            raise Overloaded("QUEUE_FULL", f"{self.num_queued} requests are waiting already{wanted}")

    def _check_tokens(self, count: int) -> None:
        if self.queued_tokens + count > self._max_tokens:
            raise Overloaded("TOKEN_BUDGET", f"{self.queued_tokens} tokens are waiting already")

    def _take_alike(self, lane: int, most: int, budget: int) -> list[Sequence]:
        if not self.waiting:
            return []
        first = self.waiting[0].source
        limit = max(1, min(most, budget // first.bucket))
        alike = first.alike
        taken = self._pick(lambda sequence: sequence.source.alike == alike, limit)
        return [self._admit(lane, sequence) for sequence in taken]

    def _take_share(self, lane: int, most: int, room: int, budget: int, least: int) -> list[Sequence]:
        if not self.may_take(lane) or self._should_wait(most, least):
            return []
        loads = self._loads_beside(lane)
        even = math.ceil((sum(loads) + self._queued_slots) / len(loads))
        limit = max(even, min(loads) + least)
        taken: list[Sequence] = []
        while self.waiting and len(taken) < most and self.loads[lane] < limit:
            first = self.waiting[0]
            budget -= first.source.bucket
            if first.width > room or (taken and budget < 0):
                break
            room -= first.width
            taken.append(self._admit(lane, self.waiting.popleft()))
        return taken

    def _loads_beside(self, lane: int) -> list[int]:
        """What `lane` holds, and each lane that could take instead of it."""
        return [load for other, load in enumerate(self.loads) if other == lane or other not in self.closed]

    def _should_wait(self, most: int, least: int) -> bool:
        if min(most, len(self.waiting)) >= least:
            return False
        first = islice(self.waiting, least)
        return not any(sequence.wants_tokens or sequence.num_input_tokens > SHORT for sequence in first)

    def _pick(self, wanted: Callable[[Sequence], bool], limit: int) -> list[Sequence]:
        taken: list[Sequence] = []
        kept: deque[Sequence] = deque()
        for sequence in self.waiting:
            (taken if len(taken) < limit and wanted(sequence) else kept).append(sequence)
        self.waiting = kept
        return taken

    def _admit(self, lane: int, sequence: Sequence) -> Sequence:
        self._leave(sequence)
        self.loads[lane] += sequence.width
        sequence.lane = lane
        return sequence

    def _leave(self, sequence: Sequence) -> None:
        self.queued_tokens -= sequence.num_input_tokens
        self._queued_slots -= sequence.width

    def __repr__(self) -> str:
        return f"<Scheduler [{self.num_queued} waiting | lanes hold {self.loads}]>"
