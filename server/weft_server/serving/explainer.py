"""A model's EXPLAIN graph: which attention a request may read, and what a finished answer attended to."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from weft_proto.tasks import TASKS
from weft_server.errors import InvalidRequest, Overloaded
from weft_server.source import feeds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from weft_proto.v1 import bundle_pb2, common_pb2
    from weft_server.runtime.session import Session
    from weft_server.source import Source
    from weft_server.telemetry.metrics import ModelMetrics

Result = TypeVar("Result")
_ALL = -1


class Reading(NamedTuple):
    """Which attention to read.

    No layer means the graph's summary of all layers. No head means the average over heads.
    """

    layer: int | None
    head: int | None


class Explanation(NamedTuple):
    """What an answer attended to: weights float32 [rows, source], whose rows sum to 1, and source_mass [rows]."""

    weights: np.ndarray
    source_mass: np.ndarray


class Explainer:
    """Repeats finished answers in a pass of its own, apart from the engine. Only its own thread calls `explain`."""

    def __init__(
        self,
        manifest: bundle_pb2.BundleManifest,
        session: Session,
        metrics: ModelMetrics,
        *,
        max_asking: int,
        thread_name: str,
    ) -> None:
        self._attention = manifest.attention
        self._text = manifest.text
        self._writes = TASKS[manifest.task].writes_text
        self._session = session
        self._metrics = metrics
        self._max_asking = max_asking
        self._num_asking = 0
        # It is not one of the model's workers. Texts and pictures of other requests would wait behind explanations
        # there.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=thread_name)
        self._waiting: set[asyncio.Future[Any]] = set()
        self._ended: dict[asyncio.Future[Any], Exception] = {}
        self._refusal: Callable[[], Exception] | None = None

    @property
    def num_waiting(self) -> int:
        """Finished answers whose explanation is not there yet."""
        return len(self._waiting)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold one of the places of requests that ask for an explanation. Raises Overloaded when all are taken."""
        if self._num_asking >= self._max_asking:
            sentence = f"{self._max_asking} requests that ask for an explanation are here already"
            raise Overloaded("QUEUE_FULL", sentence)
        self._num_asking += 1
        try:
            yield
        finally:
            self._num_asking -= 1

    async def work(self, job: Callable[[], Result]) -> Result:
        """Run `job` in the explainer's thread, after earlier jobs. Raises the outcome of `cancel_all`, if any."""
        if self._refusal is not None:
            raise self._refusal()
        answer = asyncio.get_running_loop().run_in_executor(self._worker, job)
        self._waiting.add(answer)
        self._metrics.explaining = len(self._waiting)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer in self._ended:
                raise self._ended.pop(answer) from None
            raise
        finally:
            self._waiting.discard(answer)
            self._metrics.explaining = len(self._waiting)

    def cancel_all(self, outcome: Callable[[], Exception]) -> None:
        """End all requests that wait for an explanation, now and from now on. Each gets an outcome of its own."""
        self._refusal = outcome
        for answer in self._waiting:
            if answer.cancel():
                self._ended[answer] = outcome()

    def stop(self) -> None:
        """Let the thread finish its job, and end."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def resolve(self, requested: common_pb2.Explain) -> Reading:
        """Check what a request asks to read, and fill in the model's default. Raises InvalidRequest."""
        heads = self._attention.heads
        if not requested.HasField("layer"):
            if requested.HasField("head"):
                raise InvalidRequest("explain.head", "needs explain.layer")
            return Reading(self._attention.default_layer if self._attention.HasField("default_layer") else None, None)
        layer = requested.layer
        if layer >= len(heads):
            raise InvalidRequest("explain.layer", f"must be 0..{len(heads) - 1}, not {layer}")
        if not requested.HasField("head"):
            return Reading(layer, None)
        if requested.head >= heads[layer]:
            raise InvalidRequest(
                "explain.head", f"must be 0..{heads[layer] - 1} in layer {layer}, not {requested.head}"
            )
        return Reading(layer, requested.head)

    def explain(
        self, source: Source, token_ids: Iterable[int], reading: Reading, prefix_ids: tuple[int, ...] = ()
    ) -> Explanation:
        """Compute what was attended to, a row for each of `token_ids`.

        They were produced, behind `prefix_ids`. There are none unless the model produces text.
        """
        started = time.monotonic()
        explanation = self.read(source, token_ids, reading, prefix_ids)
        self._metrics.explain.observe(time.monotonic() - started)
        return explanation

    def read(
        self, source: Source, token_ids: Iterable[int], reading: Reading, prefix_ids: tuple[int, ...] = ()
    ) -> Explanation:
        """Do as `explain`, without counting it."""
        # A batch of one, and no padding.
        feeds = feeds_of([source], source.num_tokens, self._text.pad_id)
        if self._writes:
            start = [self._text.start_id] if self._text.HasField("start_id") else []
            feeds["target_ids"] = np.array([[*start, *prefix_ids, *token_ids][:-1]], np.int64)
        for name, index in reading._asdict().items():
            feeds[name] = np.array([_ALL if index is None else index], np.int64)
        outputs = self._session.run(feeds)
        # The first rows say what the prefix itself attended to.
        first = len(prefix_ids)
        return Explanation(outputs["weights"][first:], outputs["source_mass"][first:])
