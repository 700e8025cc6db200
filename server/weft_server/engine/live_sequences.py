"""The sequences of an engine: who is in it, and how each ended. The engine holds its lock around each call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from weft_server.errors import DeadlineExpired
from weft_server.sequence import Cancelled, Delivery, FinishReason

if TYPE_CHECKING:
    from weft_server.engine.failure import Failure
    from weft_server.engine.scheduler import Scheduler
    from weft_server.sequence import Outcome, Sequence
    from weft_server.telemetry.model_metrics import ModelMetrics


class LiveSequences:
    """Sequences from the moment when they wait until they end. Each ends exactly once."""

    def __init__(self, scheduler: Scheduler, metrics: ModelMetrics) -> None:
        self._scheduler = scheduler
        self._metrics = metrics
        self.live: set[Sequence] = set()

    def enter(self, sequences: tuple[Sequence, ...], *, is_promised: bool) -> None:
        """Let sequences wait, all or none. Raises Overloaded; see Scheduler.enqueue."""
        self._scheduler.enqueue(*sequences, is_promised=is_promised, now=time.monotonic())
        self.live.update(sequences)

    def end(self, sequence: Sequence, outcome: Outcome) -> None:
        """Count a sequence's end."""
        assert sequence in self.live, f"{sequence.request_id} ended twice. This is a bug."
        self.live.remove(sequence)
        self._scheduler.settle(sequence)
        sequence.times.finished = time.monotonic()
        self._metrics.observe_sequence(sequence)
        if not isinstance(outcome, FinishReason):
            self._metrics.wasted_tokens.inc(sequence.num_output_tokens)
            if isinstance(outcome, Cancelled) and not sequence.is_counted:
                self._metrics.cancelled(sequence.stage)

    def end_late(self) -> list[Delivery]:
        """End those whose deadline has passed while they waited."""
        late = [Delivery(sequence, [], [], DeadlineExpired()) for sequence in self._scheduler.late]
        self._scheduler.late.clear()
        self._end(late)
        return late

    def free(self, lane: int, leaving: list[Delivery]) -> None:
        """Count places of a lane that are free now, and the sequences that have ended with it."""
        for delivery in leaving:
            sequence = delivery.sequence
            self._scheduler.free(lane, delivery.num_freed, sequence.standing.tenant, is_costly=sequence.is_costly)
            if delivery.outcome is not None:
                self.end(delivery.sequence, delivery.outcome)

    def vacate(self, lane: int, failure: Failure, deliveries: list[Delivery]) -> list[Delivery]:
        """End all sequences of a lane that has failed, some of them with what they have been given.

        Until there is another one in its place, other lanes do not leave waiting sequences to it.
        """
        ended = [each for each in deliveries if each.sequence in self.live]
        named = {each.sequence for each in ended if each.outcome is not None}
        lost = [each for each in self.live if each.lane == lane and each not in named]
        ended += [Delivery(sequence, [], [], failure.outcome()) for sequence in lost]
        self._end(ended)
        self._scheduler.vacate(lane)
        return ended

    def _end(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.outcome is not None:
                self.end(delivery.sequence, delivery.outcome)
