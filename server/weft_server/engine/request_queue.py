"""Who waits, and in which order they go on: by class, then by what their tenant has had, then as they came."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from weft_server.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from weft_server.sequence import Priority, Sequence

# A class that waits is passed over at most this number of times in a row, and once more where two are. So nobody waits
# for ever behind a stream of higher ones, and the higher ones keep most of the turns.
MOST_PASSED = 7
# Tenants that do not wait are forgotten when more than this are known.
MAX_TENANTS = 1024


class _Line(NamedTuple):
    """Those who wait in the order in which they came. Costly ones stand apart, so that others are found behind them."""

    priority: Priority
    tenant: str
    is_costly: bool


class RequestQueue:
    """Sequences in the order in which they shall go on.

    1. The class: high before normal before low. One that was passed over MOST_PASSED times has a turn.
    2. Of a class, the tenant that has had the fewest tokens for its weight. This is the virtual token counter of Sheng
       et al., "Fairness in Serving Large Language Models" (OSDI 2024). Tokens are charged at admission, as many as the
       answer may have, and those that it had not are given back.
    3. Of a tenant, first come, first served.

    Without classes and tenants this is one queue.

    Costly sequences have their place in this order. A lane that has enough of them asks for the first other one.

    So the longest wait has a law. Say that n of its class are before one that waits, and that its class alone is lower
    than those beside it. Then it goes on as the (n + 1) * (MOST_PASSED + 1)-th from now on at the latest.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = weights or {}
        # With the number of each arrival. One may leave from the middle, and the first is found at once.
        # In a plain dict it is not: it is looked for behind the places of those who left.
        self._queues: dict[_Line, OrderedDict[Sequence, int]] = {}
        # Tokens that each tenant has had, divided by its weight, counted from a common beginning.
        self.had: dict[str, float] = {}
        # Tokens that each tenant was charged for sequences that have gone on and not ended.
        self._open = Tally()
        # How often in a row each class that waits was passed over.
        self._passed: Counter[Priority] = Counter()
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
        waiting = {line.tenant for line in self._queues}
        if tenant not in waiting:
            self.had[tenant] = self._fresh(tenant, waiting | self._open.keys())
        self._queues.setdefault(_line_of(sequence), OrderedDict())[sequence] = next(self._arrivals)
        if len(self.had) > MAX_TENANTS:
            there = waiting | self._open.keys() | {tenant}
            self.had = {tenant: had for tenant, had in self.had.items() if tenant in there}

    def _fresh(self, tenant: str, there: set[str]) -> float:
        """Return what a tenant of which nobody waited begins to wait with, beside those who are there.

        It has no claim on what it did not ask for meanwhile. So it begins with no less than another one has had for
        certain: what is charged for sequences that run does not count. Else claims would put back who comes, and a
        tenant of which nobody waits for a moment would lose its share.
        """
        others = there - {tenant}
        if not there:
            self.had.clear()
        had = self.had.get(tenant, 0.0)
        if not others:
            return had
        certain = min(self.had[other] - self._weighed(other, self._open[other]) for other in others)
        return max(had, certain)

    def remove(self, sequence: Sequence) -> bool:
        """Take a sequence out. Returns False if it does not wait."""
        line = _line_of(sequence)
        queue = self._queues.get(line)
        if queue is None or queue.pop(sequence, None) is None:
            return False
        if not queue:
            del self._queues[line]
            if self._passed and not any(line.priority == other.priority for other in self._queues):
                del self._passed[line.priority]
        if sequence is self._held_up:
            self._held_up = None
        return True

    def hold_up(self, sequence: Sequence) -> None:
        """Let the first one stay the first, whoever comes."""
        self._held_up = sequence

    def admit(self, sequence: Sequence) -> None:
        """Take a sequence out that goes on. Its tenant is charged the tokens that it may get."""
        (priority, tenant), num_tokens = sequence.standing, sequence.most_tokens
        if len(self._queues) > 1:
            _count_turn(self._passed, priority, {line.priority for line in self._queues})
        else:  # nobody is passed over
            self._passed.clear()
        self.had[tenant] += self._weighed(tenant, num_tokens)
        self._open[tenant] += num_tokens
        self.remove(sequence)

    def end(self, sequence: Sequence) -> None:
        """Count the end of a sequence that went on. Its tenant is given back what it was charged for and had not."""
        tenant, num_tokens = sequence.standing.tenant, sequence.most_tokens
        self._open.less(tenant, num_tokens)
        spared = num_tokens - sequence.num_input_tokens - sequence.num_output_tokens
        if spared:
            self.had[tenant] -= self._weighed(tenant, spared)

    def _weighed(self, tenant: str, num_tokens: int) -> float:
        return num_tokens / self._weights.get(tenant, 1.0)

    def first(self, *, costly: bool = True) -> Sequence | None:
        """The one who goes on next, or of those who are not `costly`."""
        if self._held_up is None and costly and len(self._queues) == 1:
            return next(iter(next(iter(self._queues.values()))))
        return next(self.in_order(costly=costly), None)

    def is_near(self, tenant: str, other: str) -> bool:
        """Whether a tenant has had no more than another one that waits, and what may be had by those of it that run.

        Who goes on before its turn only then is bounded by that, and the shares that weights give hold.
        """
        return self.had[tenant] <= self.had[other] + self._weighed(other, self._open[other])

    def first_of(self, is_meant: Callable[[Sequence], bool]) -> Sequence | None:
        """Return the one who would go on next if of each tenant's class only its first one were there, and is meant."""
        heads = {line: next(iter(queue.items())) for line, queue in self._queues.items()}
        heads = {line: head for line, head in heads.items() if is_meant(head[0])}
        return heads[self._next_of(heads, self.had, self._passed)][0] if heads else None

    def _next_of(
        self, heads: Mapping[_Line, tuple[Sequence, int]], had: Mapping[str, float], passed: Counter[Priority]
    ) -> _Line:
        turn = _turn_of(passed, {line.priority for line in heads})
        of_class = [line for line in heads if line.priority == turn]
        return min(of_class, key=lambda line: (had[line.tenant], heads[line][1]))

    def in_order(self, *, costly: bool = True) -> Iterator[Sequence]:
        """All who wait, as they would go on if nobody came, or those who are not `costly`.

        Nobody may come or go meanwhile.
        """
        held_up = self._held_up
        if held_up is not None and (costly or not held_up.is_costly):
            yield held_up
        for sequence in self._merged({line: queue for line, queue in self._queues.items() if costly >= line.is_costly}):
            if sequence is not held_up:
                yield sequence

    def _merged(self, queues: dict[_Line, OrderedDict[Sequence, int]]) -> Iterator[Sequence]:
        if len(queues) == 1:
            (queue,) = queues.values()
            yield from queue
            return
        had, passed = dict(self.had), self._passed.copy()
        fronts = {line: iter(queue.items()) for line, queue in queues.items()}
        heads = {line: next(front) for line, front in fronts.items()}
        while heads:
            line = self._next_of(heads, had, passed)
            sequence = heads[line][0]
            yield sequence
            _count_turn(passed, line.priority, {line.priority for line in heads})
            had[line.tenant] += self._weighed(line.tenant, sequence.most_tokens)
            if (following := next(fronts[line], None)) is None:
                del heads[line]
            else:
                heads[line] = following


def _line_of(sequence: Sequence) -> _Line:
    return _Line(*sequence.standing, sequence.is_costly)


def _turn_of(passed: Counter[Priority], waiting: Collection[Priority]) -> Priority:
    """Return the class whose turn it is: the one passed over most often, if that is often enough, or the highest."""
    most = max(waiting, key=lambda priority: (passed[priority], -priority))
    return most if passed[most] >= MOST_PASSED else min(waiting)


def _count_turn(passed: Counter[Priority], turn: Priority, waiting: Collection[Priority]) -> None:
    """Count that of the classes that wait one had a turn."""
    for priority in waiting:
        passed[priority] += 1
    passed[turn] = 0
