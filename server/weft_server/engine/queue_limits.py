"""How many requests, tokens and bytes may wait, and how fast the queue empties."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft_server.errors import Overloaded
from weft_server.sequence import Priority
from weft_server.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft_server.sequence import Standing

# How far the bound of requests holds for each class. Low ones leave half of the places to others. High ones find a
# quarter more.
SHARES = {Priority.HIGH: 1.25, Priority.NORMAL: 1.0, Priority.LOW: 0.5}
# A tenant may hold at most this number of places for each free one, times its weight. With a weight of 1 it alone
# fills four fifths of them, and the rest is for others. This is the dynamic threshold of Choudhury and Hahne,
# "Dynamic queue length thresholds for shared-memory packet switches" (1998).
PLACES_FOR_A_FREE_ONE = 4.0
# Of the inputs that wait for one model: of pictures of 224 by 224 that is 445.
MAX_BYTES = 256 << 20


class QueueLimits:
    """Counts places, tokens and bytes. A place is held from before a request is read until it is admitted to a lane."""

    def __init__(self, max_requests: int, max_tokens: int, weights: Mapping[str, float] | None = None) -> None:
        self.max_requests = max_requests
        self.max_tokens = max_tokens
        self.num_places = 0
        self.num_tokens = 0
        self.num_bytes = 0
        self._weights = weights or {}
        # Places of each class, and of each tenant that has a name.
        self._classes = [0] * len(Priority)
        self._held = Tally()

    def check_places(self, count: int, standing: Standing) -> None:
        """Raise Overloaded if so many more places are not to be had."""
        bound = self._most_of_class(standing)
        if self.num_places + count > bound:
            wanted = f", and {count} more do not fit" if count > 1 else ""
            waiting = "1 request is" if self.num_places == 1 else f"{self.num_places} requests are"
            raise Overloaded("QUEUE_FULL", f"{waiting} waiting already{wanted}")
        if tenant := standing.tenant:
            free = max(0, self.max_requests - self.num_places)
            most = max(1.0, PLACES_FOR_A_FREE_ONE * self._weights.get(tenant, 1.0) * free)
            if self._held[tenant] + count > most:
                raise Overloaded("TENANT_QUEUE_FULL", f"{self._held[tenant]} requests of this tenant wait already")

    def most_for(self, standing: Standing) -> int:
        """How many places can be had together, if nobody else has any."""
        most = self._most_of_class(standing)
        if not standing.tenant:
            return most
        # One of these requests has its place already, and the others are for the free ones.
        free = self.max_requests - 1
        return max(1, min(most, int(PLACES_FOR_A_FREE_ONE * self._weights.get(standing.tenant, 1.0) * free)))

    def _most_of_class(self, standing: Standing) -> int:
        return max(1, int(self.max_requests * SHARES[standing.priority]))

    def check_tokens(self, count: int) -> None:
        """Raise Overloaded if so many more tokens may not wait."""
        if self.num_tokens + count > self.max_tokens:
            raise Overloaded("TOKEN_BUDGET", f"{self.num_tokens} tokens are waiting already")

    def check_bytes(self, count: int) -> None:
        """Raise Overloaded if inputs of so many bytes more may not wait."""
        if self.num_bytes + count > MAX_BYTES:
            raise Overloaded("BYTE_BUDGET", f"inputs of {self.num_bytes:,} bytes are waiting already")

    def num_ahead(self, standing: Standing) -> int:
        """How many requests are likely to go on before one that comes now. Rather too few: others may end sooner."""
        ahead = sum(self._classes[: standing.priority + 1])
        if not standing.tenant:
            return ahead
        # Tenants take turns, so each of the others has as many turns as this one.
        return min(ahead, (self._held[standing.tenant] + 1) * len(self._held))

    def take(self, count: int, standing: Standing) -> None:
        """Count places that are held from now on."""
        self.num_places += count
        self._classes[standing.priority] += count
        if standing.tenant:
            self._held[standing.tenant] += count

    def give_back(self, count: int, standing: Standing) -> None:
        """Count places that are free again."""
        self.num_places -= count
        self._classes[standing.priority] -= count
        if standing.tenant:
            self._held.less(standing.tenant, count)


def retry_after_s(wait_s: float) -> float:
    """Return when to come again where others take so many seconds, in steps of a tenth: a flood gets few answers."""
    return min(30.0, max(0.1, round(wait_s, 1))) if wait_s else 1.0


# Seconds over which the pace is averaged: what was seen this long ago counts a third of what is seen now.
MEMORY_S = 5.0
# With less than this to go by, the pace is not known.
LEAST_S = 0.5


class Throughput:
    """Requests that go on in a second, while others wait behind them. A room that is empty says nothing of the pace."""

    def __init__(self) -> None:
        self._taken = 0.0
        self._seconds = 0.0

    def note(self, num_taken: int, seconds: float) -> None:
        """Requests went on, `seconds` after the last ones, or after the first one began to wait."""
        self.fade(seconds)
        self._taken += num_taken
        self._seconds += seconds

    def fade(self, seconds: float) -> None:
        """Let what is known count less, for nobody has waited for so long."""
        kept = math.exp(-seconds / MEMORY_S)
        self._taken *= kept
        self._seconds *= kept

    def wait_s(self, num_ahead: int) -> float:
        """Seconds that a request with so many ahead of it is going to wait. 0 if the pace is not known."""
        if self._seconds < LEAST_S or not self._taken:
            return 0.0
        return num_ahead * self._seconds / self._taken
