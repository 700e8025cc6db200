"""A lane that classifies, tags or embeds: whole requests in batches of one padded length, no state between steps."""

from __future__ import annotations

import time
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from weft_server.engine.lane import Intake
from weft_server.engine.run_shapes import RunShapes
from weft_server.errors import DeadlineExpired
from weft_server.sequence import Delivery, FinishReason
from weft_server.telemetry.engine_stats import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from weft_server.engine.lane import Take
    from weft_server.runtime.adapter_stack import AdapterStack
    from weft_server.runtime.session import Session
    from weft_server.sequence import Outcome, Sequence
    from weft_server.source import Source
    from weft_server.telemetry.model_metrics import ModelMetrics


class ClassifyLane:
    """One thread that runs batch after batch.

    An idle lane takes requests that came together: see the engine. A busy lane takes those that came during its run.
    """

    def __init__(
        self,
        sessions: Iterable[Session],
        *,
        per_token: bool,
        best_only: bool = False,
        pad_id: int,
        max_batch: int,
        batch_tokens: int,
        metrics: ModelMetrics,
        longest: Mapping[str, Source],
        unpadded: bool = False,
        stack: AdapterStack | None = None,
    ) -> None:
        """Of several `sessions`, a run takes the one that reads its kind of input.

        `longest` has the longest input of each kind, by the port that reads it.

        `per_token` says that the graph gives values for each token, padding included. A tagger's does, and that of a
        model with a vector for each token.

        `best_only` says that of the labels of each moment the likeliest is an answer: its index and its
        log-probability, float32 [moments, 2]. There are fewer labels than a float32 counts exactly.

        `unpadded` is as in RunShapes.

        `stack` has a place for each request of a batch, if the model takes adapters.
        """
        self.gone: deque[tuple[Sequence, Outcome]] = deque()
        self.sessions = {port: session for session in sessions for port in session.input_names}
        self._per_token = per_token
        self._best_only = best_only
        self._pad_id = pad_id
        self._max_batch = max_batch
        self._batch_tokens = batch_tokens
        self._metrics = metrics
        device = next(iter(self.sessions.values())).device
        self._shapes = RunShapes(
            device, attrgetter("bucket"), longest, most=max_batch, budget=batch_tokens, unpadded=unpadded
        )
        self._stack = stack
        self._batch: list[Sequence] = []

    def first_runs(self) -> Iterator[None]:
        """Run each shape once, if the sessions are on a device."""
        for sources in self._shapes.trials():
            self._compute(sources, {})
            yield

    @property
    def is_busy(self) -> bool:
        """Whether a step has something to do even if nothing waits. It never has: a step finishes what it takes."""
        return False

    def has_room(self) -> bool:
        """Whether a waiting sequence could be taken now. Between steps, one always could."""
        return True

    def is_open(self) -> bool:
        """Whether it takes waiting sequences within some steps. It always does."""
        return True

    def usage(self) -> Usage:
        """Nothing is held between steps."""
        return Usage()

    def step(self, take: Take) -> list[Delivery]:
        """Run one batch. Returns what there is to hand over.

        Each sequence that was taken ends in one of three ways:

        1. Its deadline has passed before the run. It takes no part.
        2. It is cancelled while the batch runs. The run cannot drop it, and its answer is not counted.
        3. It has its answer.
        """
        self._batch = take(Intake(self._max_batch, self._batch_tokens, shapes=self._shapes))
        now = time.monotonic()
        late = [sequence for sequence in self._batch if sequence.deadline < now]
        batch = [sequence for sequence in self._batch if sequence.deadline >= now]
        answers = self._run(batch) if batch else []
        gone = self._take_gone()
        self._batch = []
        deliveries = [Delivery(sequence, [], [], DeadlineExpired(), num_freed=1) for sequence in late]
        for sequence, values in zip(batch, answers, strict=True):
            outcome = gone.get(sequence, FinishReason.STOP)
            deliveries.append(Delivery(sequence, [], [], outcome, values, num_freed=1))
        return deliveries

    def fail(self, outcome: Callable[[], Exception]) -> list[Delivery]:
        """End the batch after a failed step, each sequence with an outcome of its own."""
        batch, self._batch = self._batch, []
        return [Delivery(sequence, [], [], outcome(), num_freed=1) for sequence in batch]

    def _take_gone(self) -> dict[Sequence, Outcome]:
        """Return the sequences that were cancelled since the last call, with their outcomes.

        Some may belong to the batch before. They were cancelled between the end of its run and their delivery, and have
        ended already.
        """
        gone: dict[Sequence, Outcome] = {}
        while self.gone:
            sequence, outcome = self.gone.popleft()
            gone[sequence] = outcome
        return gone

    def _run(self, batch: list[Sequence]) -> list[np.ndarray | None]:
        """Each sequence's own values."""
        started = time.monotonic()
        sources = [sequence.source for sequence in batch]
        values = self._compute(sources, self._adapters(batch, self.sessions[sources[0].port]))
        self._observe(batch, started, self._shapes.computed_tokens(sources))
        # Copies, so that no answer keeps those of the whole batch alive.
        return [self._own(row, sequence).copy() for row, sequence in zip(values, batch, strict=True)]

    def _compute(self, sources: list[Source], adapters: dict[str, np.ndarray]) -> np.ndarray:
        """What the graph gives for each of the sources, which are alike."""
        # Whatever the task, the graph has one output.
        (values,) = self.sessions[sources[0].port].run(self._shapes.feeds(sources, self._pad_id) | adapters).values()
        return values[: len(sources)]

    def _adapters(self, batch: list[Sequence], session: Session) -> dict[str, np.ndarray]:
        """What the graph reads of the adapters of a batch."""
        if self._stack is None:
            return {}
        places = [self._stack.take(sequence.adapter) for sequence in batch]
        for place in places:
            # What lies there stays until the next batch.
            self._stack.let_go(place)
        return self._stack.feeds(session.input_names, np.array(places), 1)

    def _observe(self, batch: list[Sequence], started: float, padded: int) -> None:
        """Count a run of so many tokens, padding included, that began at `started`."""
        now = time.monotonic()
        self._metrics.session_run.observe(now - started)
        self._metrics.batch_size.observe(len(batch))
        self._metrics.computed_tokens.inc(padded)
        self._metrics.padding_tokens.inc(padded - sum(sequence.num_input_tokens for sequence in batch))
        for sequence in batch:
            sequence.times.first_token = now

    def _own(self, row: np.ndarray, sequence: Sequence) -> np.ndarray:
        """The part of a run's row that is not padding, and that is asked for."""
        if self._best_only:
            best = row.argmax(axis=-1)
            return np.stack([best.astype(np.float32), row[np.arange(len(row)), best]], axis=-1)
        return row[: sequence.source.num_given] if self._per_token else row
