"""What an engine and its lanes hold now, in figures."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Usage(NamedTuple):
    """What a lane holds, or several, in slots and in cache entries (tokens)."""

    slots_used: int = 0
    slots_total: int = 0
    kv_used: int = 0
    kv_total: int = 0


def added(parts: Iterable[Usage]) -> Usage:
    """Return what several hold together."""
    return Usage(*map(sum, zip(Usage(), *parts, strict=True)))


def _joined(by: Callable[[Iterable[Any]], Any]) -> Any:
    """Make a field of which two engines of one model have one figure: `by` of theirs."""
    return field(metadata={"by": by})


@dataclass(frozen=True, slots=True)
class EngineStats:
    """An engine now: requests, tokens, slots, cache entries, and the monotonic seconds of its last sign of life."""

    queued: int = _joined(sum)
    queued_tokens: int = _joined(sum)
    oldest_queued_s: float = _joined(max)
    running: int = _joined(sum)
    held: Usage = _joined(added)  # noqa: RUF009 - it is a field
    last_step_time: float = _joined(min)
    # How many of the model's lanes and workers may still fail before the server ends.
    restarts_left: int = _joined(min)
    # Of the requests that wait, those whose pictures are on the way.
    seeing: int = field(default=0, metadata={"by": sum})

    def seen_by(self, other: EngineStats, num_requests: int, oldest_s: float) -> EngineStats:
        """The same with an engine that encodes pictures of so many of these requests, on their way since `oldest_s`.

        A picture is no request: those it is a part of have their places here.
        """
        return replace(
            self,
            oldest_queued_s=max(self.oldest_queued_s, oldest_s),
            last_step_time=min(self.last_step_time, other.last_step_time),
            restarts_left=min(self.restarts_left, other.restarts_left),
            seeing=num_requests,
        )

    def beside(self, other: EngineStats) -> EngineStats:
        """Two engines of one model as one."""
        both = {each: (getattr(self, each.name), getattr(other, each.name)) for each in fields(self)}
        return EngineStats(**{each.name: each.metadata["by"](values) for each, values in both.items()})
