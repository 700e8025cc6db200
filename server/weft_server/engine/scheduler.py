"""Who runs next: bounded waiting, and fair shares to lanes. Pure policy: no arrays, no clock, no locks."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING

from weft_server.engine.queue_limits import QueueLimits, Throughput, retry_after_s
from weft_server.engine.request_queue import RequestQueue
from weft_server.errors import DeadlineExpired, Overloaded
from weft_server.sequence import ANYBODY
from weft_server.source import SHORT
from weft_server.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft_server.engine.lane import Intake
    from weft_server.engine.run_shapes import RunShapes
    from weft_server.sequence import Sequence, Standing


# Of a lane's slots one of this number is for tenants who hold none: one at least where there are MIN_SHARED slots.
SLOTS_FOR_OTHERS = 16
MIN_SHARED = 8
# Of a lane's slots one of this number may hold rows that are costly: each makes all others wait.
SLOTS_FOR_COSTLY = 8


class Scheduler:
    """A bounded queue and the number of slots each lane holds.

    A sequence takes as many slots as it is wide, all at once. One that is the first and finds too few of them stays the
    first, and nobody overtakes it. So it has its slots as soon as so many of the lane's rows have ended.

    As soon as two tenants with a name have come, the last slots of each lane are for tenants who hold none. So who
    comes finds one, even while tenants of long answers want them all. That holds also where it is not their turn,
    unless they have had so much more that what runs of the others does not make up for it.

    Costly sequences have a small part of a lane's slots, or one that is wider has more, alone. The others of them wait,
    in their order, and who is not costly passes them.

    A place is reserved before a request is tokenized, so that nothing is computed for a request that is then refused.
    A sequence that was promised a place takes it when it comes, also beyond the bounds: then nothing new is let in.

    `now` is in monotonic seconds everywhere.
    """

    def __init__(
        self,
        num_lanes: int,
        max_queued_requests: int,
        max_queued_tokens: int,
        weights: Mapping[str, float] | None = None,
        unready_s: Callable[[], float] = float,
    ) -> None:
        """`unready_s` says for how many seconds those with a place wait for something else, before they are ready."""
        self._unready_s = unready_s
        self.waiting = RequestQueue(weights)
        self.bounds = QueueLimits(max_queued_requests, max_queued_tokens, weights)
        # Those whose deadline has passed while they waited. Whoever takes ends them.
        self.late: list[Sequence] = []
        # Slots that those who wait will take.
        self._queued_slots = 0
        self.loads = [0] * num_lanes
        # How many slots of each lane each tenant holds that has a name.
        self._held = [Tally() for _ in range(num_lanes)]
        # How many of them costly sequences hold.
        self._costly = [0] * num_lanes
        # The first tenant with a name that came, and whether there was another one.
        self._first_tenant = ""
        self._is_shared = False
        # Lanes that are full or read a long prompt. They take nothing for a while, so no other lane waits for them to.
        self.closed: set[int] = set()
        self._throughput = Throughput()
        # When somebody last went on, or began to wait in an empty room.
        self._moved = 0.0

    @property
    def num_queued(self) -> int:
        """Requests that wait, being tokenized or ready."""
        return self.bounds.num_places

    @property
    def num_reserved(self) -> int:
        """Of these, those that are being tokenized."""
        return self.bounds.num_places - len(self.waiting)

    @property
    def queued_tokens(self) -> int:
        """Input tokens of those who are ready."""
        return self.bounds.num_tokens

    def check_open(self, standing: Standing = ANYBODY) -> None:
        """Raise Overloaded when a bound is reached. Who is let in may be promised a place."""
        try:
            self.bounds.check_places(1, standing)
            self.bounds.check_tokens(1)
        except Overloaded as error:
            error.retry_after_s = self._retry_after_s()
            raise

    def reserve(
        self, standing: Standing = ANYBODY, count: int = 1, deadline: float = math.inf, now: float = 0.0
    ) -> None:
        """Take places in the queue, all or none.

        Raises:
            Overloaded: there are not so many, or the deadline would pass while it waits.
            DeadlineExpired: it has passed.
        """
        if not count:
            return
        try:
            self._note_tenant(standing.tenant)
            self.bounds.check_places(count, standing)
            self._check_deadline(standing, deadline, now)
        except Overloaded as error:
            error.retry_after_s = self._retry_after_s()
            raise
        self.bounds.take(count, standing)

    def release(self, standing: Standing = ANYBODY, count: int = 1) -> None:
        """Give reserved places back."""
        self.bounds.give_back(count, standing)

    def check_tokens(self, num_tokens: int) -> None:
        """Raise Overloaded where so many tokens more may not wait."""
        # What is too long for the bound may wait alone. Otherwise it would never be answered.
        if self.waiting:
            self.bounds.check_tokens(num_tokens)

    def _check_bytes(self, num_bytes: int) -> None:
        """Raise Overloaded where so many bytes more may not wait. As with tokens, one may wait alone."""
        if self.waiting:
            self.bounds.check_bytes(num_bytes)

    def enqueue(self, *sequences: Sequence, is_promised: bool = False, now: float = 0.0) -> None:
        """Turn reserved places into waiting sequences, all or none. Promised ones need no places.

        Raises:
            Overloaded: the bound of tokens, or that of bytes, is reached. The places are kept.
        """
        num_tokens = num_bytes = num_slots = 0
        for sequence in sequences:
            num_tokens += sequence.num_input_tokens
            num_bytes += sequence.source.num_bytes
            num_slots += sequence.width
        if not is_promised:
            self.check_tokens(num_tokens)
            self._check_bytes(num_bytes)
        if not self.waiting:
            self._throughput.fade(max(0.0, now - self._moved))
            self._moved = now
        self.bounds.num_tokens += num_tokens
        self.bounds.num_bytes += num_bytes
        self._queued_slots += num_slots
        for sequence in sequences:
            if is_promised:
                self.bounds.take(1, sequence.standing)
            self.waiting.add(sequence)

    def remove(self, sequence: Sequence) -> bool:
        """Take a sequence out of the queue. Returns False when it does not wait."""
        if sequence.lane is not None or not self.waiting.remove(sequence):
            return False
        self._leave(sequence)
        return True

    def may_take(self, lane: int) -> bool:
        """Whether `lane` should take from the queue now: a sequence waits, and no open lane holds fewer."""
        return bool(self.waiting) and self.loads[lane] <= min(self._loads_beside(lane))

    def take(self, lane: int, intake: Intake, now: float = 0.0) -> list[Sequence]:
        """Hand waiting sequences to `lane`."""
        taken = self._take_alike(lane, intake.shapes, now) if intake.shapes else self._take_share(lane, intake, now)
        if taken:
            self._throughput.note(len(taken), max(0.0, now - self._moved))
            self._moved = now
        return taken

    def free(self, lane: int, num_slots: int = 1, tenant: str = "", *, is_costly: bool = False) -> None:
        """Count slots of a lane that are free again, and were a tenant's, or of a costly sequence."""
        self.loads[lane] -= num_slots
        self._costly[lane] -= num_slots * is_costly
        if tenant:
            self._held[lane].less(tenant, num_slots)
        assert self.loads[lane] >= 0, f"lane {lane} freed more than it took. This is a bug."

    def settle(self, sequence: Sequence) -> None:
        """Give the tenant of a sequence that has ended back what it was charged for and had not."""
        if sequence.lane is not None:
            self.waiting.end(sequence)

    def vacate(self, lane: int) -> None:
        """Count all slots of a lane as free, and the lane as closed: it is gone, and another one takes its place."""
        self.loads[lane] = 0
        self._costly[lane] = 0
        self._held[lane].clear()
        self.closed.add(lane)

    def _check_deadline(self, standing: Standing, deadline: float, now: float) -> None:
        if deadline < now:
            raise DeadlineExpired
        # Where nobody is ready to go on, those who are tokenized are no queue.
        wait_s = self._throughput.wait_s(self.bounds.num_ahead(standing)) if self.waiting else 0.0
        if now + wait_s > deadline:
            seconds = f"{wait_s:.1f} s, and the deadline is in {max(0.0, deadline - now):.1f} s"
            raise Overloaded("DEADLINE_TOO_NEAR", f"those who wait already take about {seconds}")

    def _retry_after_s(self) -> float:
        """Seconds in which those who wait have gone on, here or before they are ready."""
        return retry_after_s(max(self._throughput.wait_s(self.num_queued), self._unready_s()))

    def _note_tenant(self, tenant: str) -> None:
        self._first_tenant = self._first_tenant or tenant
        self._is_shared = self._is_shared or tenant != self._first_tenant

    def _crowds(self, sequence: Sequence, lane: int, num_slots: int) -> bool:
        """Whether a sequence of a tenant who holds slots would take the last ones of a lane, which are for others."""
        if not self._is_shared or num_slots < MIN_SHARED or sequence.standing.tenant not in self._held[lane]:
            return False
        return self.loads[lane] + sequence.width > num_slots - max(1, num_slots // SLOTS_FOR_OTHERS)

    def _next(self, lane: int, num_slots: int, now: float) -> tuple[Sequence | None, bool]:
        """Return who goes on in a lane, and whether that is before its turn: the first one would take others' slots.

        Where the first one is costly and finds no slot that it may have, it is passed by the first who is not.
        """
        first = self._first(now)
        if first is not None and not self._has_room_for_costly(first, lane, num_slots):
            first = self._first(now, costly=False)
        if first is None or not self._crowds(first, lane, num_slots):
            return first, False
        free, held, turn = num_slots - self.loads[lane], self._held[lane], first.standing.tenant

        def may_go(other: Sequence) -> bool:
            tenant = other.standing.tenant
            if tenant in held or other.width > free or not self._has_room_for_costly(other, lane, num_slots):
                return False
            return self.waiting.is_near(tenant, turn)

        while (other := self.waiting.first_of(may_go)) is not None and other.deadline <= now:
            self._drop(other)
        return other, True

    def _has_room_for_costly(self, sequence: Sequence, lane: int, num_slots: int) -> bool:
        """Whether a sequence is not costly, or finds a slot that those who are may have: one alone may have any."""
        if not sequence.is_costly or not self._costly[lane]:
            return True
        return self._costly[lane] + sequence.width <= num_slots // SLOTS_FOR_COSTLY

    def _first(self, now: float, *, costly: bool = True) -> Sequence | None:
        """The first one, or of those who are not `costly`, whose deadline has not passed. Those before are dropped."""
        while (first := self.waiting.first(costly=costly)) is not None:
            if first.deadline > now:
                return first
            self._drop(first)
        return None

    def _drop(self, late: Sequence) -> None:
        self.waiting.remove(late)
        self._leave(late)
        self.late.append(late)

    def _take_alike(self, lane: int, shapes: RunShapes, now: float) -> list[Sequence]:
        first = self._first(now)
        if first is None:
            return []
        limit, alike = min(shapes.limit(first.source), self._even_share(lane)), shapes.alike(first.source)
        wanted = (sequence for sequence in self.waiting.in_order() if shapes.alike(sequence.source) == alike)
        chosen = list(islice(wanted, limit))
        for late in [sequence for sequence in chosen if sequence.deadline <= now]:
            self._drop(late)
        return [self._admit(lane, sequence) for sequence in chosen if sequence.deadline > now]

    def _take_share(self, lane: int, intake: Intake, now: float) -> list[Sequence]:
        most, budget, least = intake.most, intake.budget, intake.least
        room = most if intake.room is None else intake.room
        if not self.may_take(lane) or self._should_wait(most, least):
            return []
        limit = max(self._even_share(lane), min(self._loads_beside(lane)) + least)
        taken: list[Sequence] = []
        num_slots = self.loads[lane] + room
        while len(taken) < most and self.loads[lane] < limit and self.waiting:
            following, is_early = self._next(lane, num_slots, now)
            if following is None:
                break
            budget -= following.source.bucket
            if following.width > room or (intake.fits and not intake.fits(following)):
                if not is_early:
                    self.waiting.hold_up(following)
                break
            if taken and budget < 0:
                break
            room -= following.width
            taken.append(self._admit(lane, following))
        return taken

    def _even_share(self, lane: int) -> int:
        """How much `lane` would hold if all that lanes hold and all that waits were shared evenly."""
        loads = self._loads_beside(lane)
        return math.ceil((sum(loads) + self._queued_slots) / len(loads))

    def _loads_beside(self, lane: int) -> list[int]:
        """What `lane` holds, and each lane that could take instead of it."""
        return [load for other, load in enumerate(self.loads) if other == lane or other not in self.closed]

    def _should_wait(self, most: int, least: int) -> bool:
        if min(most, len(self.waiting)) >= least:
            return False
        first = islice(self.waiting.in_order(), least)
        return not any(sequence.wants_tokens or sequence.num_input_tokens > SHORT for sequence in first)

    def _admit(self, lane: int, sequence: Sequence) -> Sequence:
        self.waiting.admit(sequence)
        self._leave(sequence)
        self.loads[lane] += sequence.width
        self._costly[lane] += sequence.width * sequence.is_costly
        if tenant := sequence.standing.tenant:
            self._held[lane][tenant] += sequence.width
        sequence.lane = lane
        return sequence

    def _leave(self, sequence: Sequence) -> None:
        self.bounds.give_back(1, sequence.standing)
        self.bounds.num_tokens -= sequence.num_input_tokens
        self.bounds.num_bytes -= sequence.source.num_bytes
        self._queued_slots -= sequence.width

    def __repr__(self) -> str:
        return f"<Scheduler [{self.num_queued} waiting | lanes hold {self.loads}]>"
