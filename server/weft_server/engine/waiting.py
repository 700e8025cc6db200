"""Who waits, and in which order they go on: by class, then by what their tenant has had, then as they came."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING

from weft_server.sequence import Priority

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weft_server.sequence import Sequence, Standing

# A sequence that has waited this number of seconds goes on as one of the next higher class would. So nobody waits for
# ever behind a stream of higher ones.
AGE_S = 5.0
# Tenants that do not wait are forgotten when more than this are known.
MAX_TENANTS = 1024


class WaitingRoom:
    """Sequences in the order in which they shall go on.

    1. The class: high before normal before low. Waiting raises it.
    2. Of a class, the tenant that has had the fewest tokens for its weight. This is the virtual token counter of Sheng
       et al., "Fairness in Serving Large Language Models" (OSDI 2024). Tokens are charged at admission, as many as the
       answer may have, and those that it had not are given back.
    3. Of a tenant, first come, first served.

    Without classes and tenants this is one queue.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = weights or {}
        # With the number of each arrival. One may leave from the middle, and the first is found at once.
        # In a plain dict it is not: it is looked for behind the places of those who left.
        self._queues: dict[Standing, OrderedDict[Sequence, int]] = {}
        # Tokens that each tenant has had, divided by its weight, counted from a common beginning.
        self._had: dict[str, float] = {}
        # Which beginning that is. What was charged before it is not given back.
        self._era = 0
        self._arrivals = itertools.count()
        # The first one once found too few slots. It stays the first until it has them: otherwise those who need fewer
        # would pass it again and again.
        self._held_up: Sequence | None = None

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def oldest(self) -> float:
        """Monotonic seconds at which the one who has waited longest was accepted. Infinity if nobody waits."""
        firsts = (next(iter(queue)) for queue in self._queues.values())
        return min((first.times.accepted for first in firsts), default=float("inf"))

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait."""
        tenant = sequence.standing.tenant
        if not self._queues:
            self._had.clear()
            self._era += 1
        elif not any(tenant == standing.tenant for standing in self._queues):
            # Who comes back has no claim on what it did not ask for meanwhile.
            least = min(self._had.get(standing.tenant, 0.0) for standing in self._queues)
            self._had[tenant] = max(self._had.get(tenant, 0.0), least)
        self._queues.setdefault(sequence.standing, OrderedDict())[sequence] = next(self._arrivals)
        if len(self._had) > MAX_TENANTS:
            waiting = {standing.tenant for standing in self._queues}
            self._had = {tenant: had for tenant, had in self._had.items() if tenant in waiting}

    def remove(self, sequence: Sequence) -> bool:
        """Take a sequence out. Returns False if it does not wait."""
        queue = self._queues.get(sequence.standing)
        if queue is None or queue.pop(sequence, None) is None:
            return False
        if not queue:
            del self._queues[sequence.standing]
        if sequence is self._held_up:
            self._held_up = None
        return True

    def hold_up(self, sequence: Sequence) -> None:
        """Let the first one stay the first, whoever comes."""
        self._held_up = sequence

    def charge(self, sequence: Sequence) -> None:
        """Count the tokens that a tenant may get for a sequence. While one tenant alone waits, nobody counts."""
        tenant = sequence.standing.tenant
        if tenant in self._had or len(self._queues) > 1:
            self._had[tenant] = self._had.get(tenant, 0.0) + self._weighed(tenant, sequence.most_tokens)
            sequence.charged_in = self._era

    def give_back(self, sequence: Sequence) -> None:
        """Take tokens off the account that an ended sequence was charged for and had not."""
        tenant = sequence.standing.tenant
        if tenant in self._had and sequence.charged_in == self._era:
            spared = sequence.most_tokens - sequence.num_input_tokens - sequence.num_output_tokens
            self._had[tenant] -= self._weighed(tenant, spared)

    def _weighed(self, tenant: str, num_tokens: int) -> float:
        return num_tokens / self._weights.get(tenant, 1.0)

    def first(self, now: float) -> Sequence:
        """The one who goes on next. Somebody must wait. `now` is in monotonic seconds."""
        return next(self.in_order(now))

    def in_order(self, now: float) -> Iterator[Sequence]:
        """All who wait, as they would go on if nobody came. Nobody may come or go meanwhile."""
        if self._held_up is not None:
            yield self._held_up
        for sequence in self._merged(now):
            if sequence is not self._held_up:
                yield sequence

    def _merged(self, now: float) -> Iterator[Sequence]:
        if len(self._queues) == 1:
            (queue,) = self._queues.values()
            yield from queue
            return
        had = {standing.tenant: self._had.get(standing.tenant, 0.0) for standing in self._queues}
        fronts = {standing: iter(queue.items()) for standing, queue in self._queues.items()}
        heads = {standing: next(front) for standing, front in fronts.items()}

        def place(standing: Standing) -> tuple[int, float, int]:
            sequence, number = heads[standing]
            raised = int((now - sequence.times.accepted) // AGE_S)
            return max(Priority.HIGH, standing.priority - max(0, raised)), had[standing.tenant], number

        while heads:
            standing = min(heads, key=place)
            sequence = heads[standing][0]
            yield sequence
            had[standing.tenant] += self._weighed(standing.tenant, sequence.most_tokens)
            if (following := next(fronts[standing], None)) is None:
                del heads[standing]
            else:
                heads[standing] = following
