"""A model's EXPLAIN graph: which attention a request may read, and what a finished answer attended to."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from weft_proto.bundle_rules import FEATURES, POSITION_OFFSETS, QUESTION_WEIGHTS, TARGET_WEIGHTS
from weft_proto.sight import NUM_AXES, feature_width, offsets_positions
from weft_proto.tasks import TASKS
from weft_server.engine.failure import Failure
from weft_server.engine.queue_limits import QueueLimits
from weft_server.errors import InvalidRequest
from weft_server.models.turns import Turns
from weft_server.sequence import ANYBODY
from weft_server.source import feeds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from weft_proto.v1 import bundle_pb2, common_pb2
    from weft_server.models.worker_pool import WorkerPool
    from weft_server.runtime.adapter_stack import AdapterStack
    from weft_server.runtime.session import Session
    from weft_server.sequence import Adapter, Standing
    from weft_server.source import Source
    from weft_server.telemetry.model_metrics import ModelMetrics

Result = TypeVar("Result")
_ALL = -1
# Requests whose pictures lie ready for an explanation: one that is read, and the next.
MAX_SEEING_AGAIN = 2


class AttentionChoice(NamedTuple):
    """Which attention to read.

    No layer means the graph's summary of all layers. No head means the average over heads.
    """

    layer: int | None
    head: int | None


class Heat(NamedTuple):
    """How attention lay: weights float32 [rows, places], whose rows sum to 1, and what they summed to before."""

    weights: np.ndarray
    mass: np.ndarray


class Explanation(NamedTuple):
    """What an answer attended to: weights float32 [rows, source], whose rows sum to 1, and source_mass [rows].

    question: the same over the tokens of a question. None: there is none, or the graph does not tell.
    """

    weights: np.ndarray
    source_mass: np.ndarray
    question: Heat | None = None


class Explainer:
    """Repeats finished answers in a pass of its own, apart from the engine. Only its own thread calls `explain`."""

    def __init__(
        self,
        manifest: bundle_pb2.BundleManifest,
        session: Session,
        metrics: ModelMetrics,
        *,
        max_asking: int,
        worker: WorkerPool,
        stack: AdapterStack | None = None,
        weights: Mapping[str, float] | None = None,
        asking: Callable[[], Standing] = lambda: ANYBODY,
    ) -> None:
        """`worker` is none of the model's own. Texts and pictures of other requests would wait behind explanations.

        `stack` has a place for an adapter, if the model takes any. Classes and tenants share the places of `max_asking`
        requests as those of a queue, and `asking` says who asks.
        """
        self._attention = manifest.attention
        self._text = manifest.text
        self._width = feature_width(manifest)
        self._offsets = offsets_positions(manifest)
        self._writes = TASKS[manifest.task].writes_text
        self._session = session
        self._metrics = metrics
        self._bounds = QueueLimits(max_asking, 0, weights)
        self._asking = asking
        self._worker = worker
        self._stack = stack
        # Finished answers whose explanation is not there yet.
        self.num_waiting = 0
        # Who holds what the model sees in the pictures of a prompt once more.
        self.seeing_again = Turns(MAX_SEEING_AGAIN, weights)

    @property
    def num_places(self) -> int:
        """Requests that hold a place: they ask for an explanation, and have not ended."""
        return self._bounds.num_places

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold one of the places of requests that ask for an explanation. Raises Overloaded when there is none."""
        standing = self._asking()
        self._bounds.check_places(1, standing)
        self._bounds.take(1, standing)
        try:
            yield
        finally:
            self._bounds.give_back(1, standing)

    async def work(self, job: Callable[[], Result]) -> Result:
        """Run `job` in the explainer's thread, after earlier jobs. Raises the outcome of `cancel_all`, if any."""
        self._count_waiting(1)
        try:
            return await self._worker.do(job)
        finally:
            self._count_waiting(-1)

    def _count_waiting(self, change: int) -> None:
        self.num_waiting += change
        self._metrics.explaining = self.num_waiting

    def supervise(self, timeout_s: float) -> None:
        """Give up a job that takes longer than `timeout_s` seconds."""
        self._worker.supervise(timeout_s)

    def cancel_all(self, outcome: Callable[[], Exception]) -> None:
        """End all requests that wait for an explanation, now and from now on. Each gets an outcome of its own."""
        self._worker.cancel_all(outcome)

    def stop(self) -> None:
        """Let the thread finish its job, and end."""
        self._worker.stop()

    def resolve(self, requested: common_pb2.Explain) -> AttentionChoice:
        """Check what a request asks to read, and fill in the model's default. Raises InvalidRequest."""
        heads = self._attention.heads
        if not requested.HasField("layer"):
            if requested.HasField("head"):
                raise InvalidRequest("explain.head", "needs explain.layer")
            return AttentionChoice(
                self._attention.default_layer if self._attention.HasField("default_layer") else None, None
            )
        layer = requested.layer
        if layer >= len(heads):
            raise InvalidRequest("explain.layer", f"must be 0..{len(heads) - 1}, not {layer}")
        if not requested.HasField("head"):
            return AttentionChoice(layer, None)
        if requested.head >= heads[layer]:
            raise InvalidRequest(
                "explain.head", f"must be 0..{heads[layer] - 1} in layer {layer}, not {requested.head}"
            )
        return AttentionChoice(layer, requested.head)

    def explain(
        self,
        source: Source,
        token_ids: Iterable[int],
        reading: AttentionChoice,
        prefix_ids: tuple[int, ...] = (),
        adapter: Adapter | None = None,
    ) -> Explanation:
        """Compute what was attended to, a row for each of `token_ids`.

        They were produced by `adapter`, if there is one, behind `prefix_ids`. There are none unless the model produces
        text.

        Raises:
            LaneFailed: the graph failed.
            Overloaded: memory ran out.
        """
        started = time.monotonic()
        try:
            explanation = self.read(source, token_ids, reading, prefix_ids, adapter)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this request and not the thread
            failure = Failure.of(error, "EXPLAIN_FAILED")
            failure.note(self._metrics)
            raise failure.outcome() from None
        self._metrics.explain.observe(time.monotonic() - started)
        return explanation

    def read(
        self,
        source: Source,
        token_ids: Iterable[int],
        reading: AttentionChoice,
        prefix_ids: tuple[int, ...] = (),
        adapter: Adapter | None = None,
    ) -> Explanation:
        """Do as `explain`, without counting it."""
        # A batch of one, and no padding.
        feeds = feeds_of([source], source.num_tokens, self._text.pad_id)
        if self._width:
            length, none = source.num_tokens, np.zeros((source.num_tokens, self._width), np.float32)
            seen, offsets = source.beside(0, length)
            feeds |= {"input_ids": source.piece(0, length)[None], FEATURES: (none if seen is None else seen)[None]}
            if self._offsets:
                given = np.zeros((length, NUM_AXES), np.int64) if offsets is None else offsets
                feeds[POSITION_OFFSETS] = given[None]
        if self._writes:
            start = [self._text.start_id] if self._text.HasField("start_id") else []
            feeds["target_ids"] = np.array([[*start, *prefix_ids, *token_ids][:-1]], np.int64)
        for name, index in reading._asdict().items():
            feeds[name] = np.array([_ALL if index is None else index], np.int64)
        if self._stack:
            place = self._stack.take(adapter)
            self._stack.let_go(place)
            feeds |= self._stack.feeds(self._session.input_names, np.array([place]), 1)
        outputs = self._session.run(feeds)
        # The first rows say what the prefix itself attended to.
        first = len(prefix_ids)
        question = None
        if QUESTION_WEIGHTS in outputs:
            question = _heat_of(outputs[QUESTION_WEIGHTS][first:])
        if TARGET_WEIGHTS in outputs and source.asked_ids:
            target, size = outputs[TARGET_WEIGHTS], feeds["target_ids"].shape[1]
            if target.shape != (size, size):
                raise ValueError(f"{TARGET_WEIGHTS} has shape {list(target.shape)}, and not {[size, size]}")
            # The start token stands before the prefix, and a question is the prefix's end.
            question = _heat_of(target[first:, 1 + first - len(source.asked_ids) : 1 + first])
        return Explanation(outputs["weights"][first:], outputs["source_mass"][first:], question)


def _heat_of(attention: np.ndarray) -> Heat:
    """Make each row of attention [rows, places] sum to 1, and tell what it summed to. One without any is uniform."""
    exact = attention.astype(np.float64)
    mass = exact.sum(axis=1)
    some = mass[:, None] > 0
    rows = np.where(some, exact / np.where(some, mass[:, None], 1), 1 / attention.shape[1])
    return Heat(rows.astype(np.float32), mass.astype(np.float32))
