"""A lane that classifies or tags: whole requests in batches of one padded length, no state between steps."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from weft_server.errors import DeadlineExpired
from weft_server.runner import encoder_feeds
from weft_server.sequence import Delivery, FinishReason, StepFailed, Usage

if TYPE_CHECKING:
    from weft_server.lane import Take
    from weft_server.metrics import ModelMetrics
    from weft_server.sequence import Outcome, Sequence
    from weft_server.session import Session


class ClassifyLane:
    """One thread's batches: an idle lane takes what came together (see the engine), a busy one what came meanwhile."""

    def __init__(
        self, session: Session, *, pad_id: int, max_batch: int, batch_tokens: int, metrics: ModelMetrics
    ) -> None:
        self.gone: deque[tuple[Sequence, Outcome]] = deque()
        self._session = session
        self._pad_id = pad_id
        self._max_batch, self._batch_tokens = max_batch, batch_tokens
        self._metrics = metrics
        self._batch: list[Sequence] = []

    @property
    def is_busy(self) -> bool:
        """Whether a step has something to do even if nothing waits: never, a step finishes what it takes."""
        return False

    def has_room(self) -> bool:
        """Whether a waiting sequence could be taken now: always, between steps."""
        return True

    def is_open(self) -> bool:
        """Whether it takes who waits within some steps: always."""
        return True

    def usage(self) -> Usage:
        """Nothing is held between steps."""
        return Usage(0, 0, 0, 0)

    def step(self, take: Take) -> list[Delivery]:
        """Run one batch; what there is to hand over."""
        self._batch = take(most=self._max_batch, budget=self._batch_tokens, alike=True)
        now = time.monotonic()
        late = [sequence for sequence in self._batch if sequence.deadline < now]
        deliveries = [Delivery(sequence, [], [], DeadlineExpired()) for sequence in late]
        batch = [sequence for sequence in self._batch if sequence.deadline >= now]
        if batch:
            self._run(batch)
        gone = self._take_gone()
        deliveries += [Delivery(sequence, [], [], gone.get(sequence, FinishReason.STOP)) for sequence in batch]
        self._batch = []
        return deliveries

    def fail(self, error: Exception) -> list[Delivery]:
        """End the batch with `error` after a failed step."""
        batch, self._batch = self._batch, []
        return [Delivery(sequence, [], [], StepFailed(error)) for sequence in batch]

    def _take_gone(self) -> dict[Sequence, Outcome]:
        """Whoever left while the batch ran, which is over before anyone can be dropped from it, and some of before."""
        gone: dict[Sequence, Outcome] = {}
        while self.gone:
            sequence, outcome = self.gone.popleft()
            gone[sequence] = outcome
        return gone

    def _run(self, batch: list[Sequence]) -> None:
        started = time.monotonic()
        feeds = encoder_feeds([sequence.inputs for sequence in batch], batch[0].bucket, self._pad_id)
        probabilities = self._session.run(feeds)["probabilities"]
        now = time.monotonic()
        self._metrics.session_run.observe(now - started)
        self._metrics.batch_size.observe(len(batch))
        padded = len(batch) * batch[0].bucket
        self._metrics.computed_tokens.inc(padded)
        self._metrics.padding_tokens.inc(padded - sum(sequence.num_input_tokens for sequence in batch))
        for row, sequence in enumerate(batch):
            own = probabilities[row]
            if own.ndim == 2:  # a tagger's, with a row for each token, padding included
                own = own[: sequence.num_input_tokens]
            # A copy, so that no answer keeps those of the whole batch alive.
            # Nobody reads it before the delivery below has crossed to the event loop.
            sequence.reply.probabilities = own.copy()
            sequence.times.first_token = now
