"""What an engine and its lanes hold now, in figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Usage(NamedTuple):
    """What a lane holds, in slots and in cache entries (tokens)."""

    slots_used: int
    slots_total: int
    kv_used: int
    kv_total: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """An engine now: requests, tokens, slots, cache entries, and the monotonic seconds of its last sign of life."""

    queued: int
    queued_tokens: int
    oldest_queued_s: float
    running: int
    slots_used: int
    slots_total: int
    kv_used: int
    kv_total: int
    last_step_time: float
    # How many of the model's lanes and workers may still fail before the server ends.
    restarts_left: int

    def beside(self, other: EngineStats) -> EngineStats:
        """Two engines of one model as one."""
        return EngineStats(
            queued=self.queued + other.queued,
            queued_tokens=self.queued_tokens + other.queued_tokens,
            oldest_queued_s=max(self.oldest_queued_s, other.oldest_queued_s),
            running=self.running + other.running,
            slots_used=self.slots_used + other.slots_used,
            slots_total=self.slots_total + other.slots_total,
            kv_used=self.kv_used + other.kv_used,
            kv_total=self.kv_total + other.kv_total,
            last_step_time=min(self.last_step_time, other.last_step_time),
            restarts_left=min(self.restarts_left, other.restarts_left),
        )
