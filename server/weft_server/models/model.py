"""A loaded model: its engine, workers, tokenizers, and how many rows a request may ask for."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from weft_proto.languages import Languages
from weft_server.errors import ModelFailed
from weft_server.models.held_bytes import HELD
from weft_server.models.worker_pool import WorkerPool
from weft_server.telemetry.engine_stats import EngineStats

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_proto.v1 import common_pb2
    from weft_server.bundle.load import Bundle
    from weft_server.engine.engine import Engine
    from weft_server.engine.failure import FailureBudget
    from weft_server.engine.paged.block_pool import PoolSize
    from weft_server.logits_processors.constraint import Constraint
    from weft_server.models.adapters import Adapters
    from weft_server.models.explainer import Explainer
    from weft_server.models.label_embeddings import LabelEmbeddings
    from weft_server.models.picture_features import PictureFeatures
    from weft_server.models.placement import Claim
    from weft_server.models.seeing import Seeing
    from weft_server.models.worker_queue import ConstraintQueue, WorkerQueue
    from weft_server.preprocessing.inputs import InputReader
    from weft_server.preprocessing.tokenizer import Tokenizer
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.sequence import Standing
    from weft_server.structured_output.grammars import Grammars
    from weft_server.telemetry.model_metrics import ModelMetrics


class DecodingLimits(NamedTuple):
    """How many rows a request may take, 0 where it may not at all, and how many candidates each row has.

    pool: the blocks that all rows of a request have to fit into, if the model's cache is paged.
    """

    max_beams: int
    max_outputs: int
    num_candidates: int
    pool: PoolSize | None = None


Result = TypeVar("Result")
NUM_WORKERS = 2


def worker_name(bundle: Bundle) -> str:
    """How the names of a model's threads begin, except for its lanes. `Model.stop` finds them by it."""
    return f"{bundle.name}/{bundle.version}-worker"


class Model:
    """One version of one model, able to answer once its engine is started. `build_model` makes it."""

    def __init__(
        self,
        *,
        bundle: Bundle,
        metrics: ModelMetrics,
        source_tokenizer: Tokenizer | None,
        target_tokenizer: Tokenizer | None,
        reader: InputReader,
        engine: Engine,
        explainer: Explainer | None,
        tokenizing: WorkerQueue,
        scorer: Engine | None,
        widths: DecodingLimits,
        grammars: Grammars,
        adapters: Adapters,
        label_vectors: LabelEmbeddings,
        sight: Engine | None,
        picture_features: PictureFeatures,
        seeing: Seeing,
        building: ConstraintQueue,
        failure_budget: FailureBudget,
        claim: Claim,
    ) -> None:
        self.bundle = bundle
        self.name = bundle.name
        self.version = bundle.version
        self.manifest = bundle.manifest
        self.languages = Languages(bundle.manifest.text)
        self.metrics = metrics
        self._source_tokenizer = source_tokenizer
        self._target_tokenizer = target_tokenizer
        self.reader = reader
        self.engine = engine
        self.explainer = explainer
        self.tokenizing = tokenizing
        # Scores given answers, apart from the engine that produces them.
        self.scorer = scorer
        self.widths = widths
        self.grammars = grammars
        self.adapters = adapters
        self.label_vectors = label_vectors
        # Encodes the pictures of prompts, apart from the engine that reads them.
        self.sight = sight
        self.picture_features = picture_features
        self.seeing = seeing
        # Each model has its own workers, so that a slow picture holds up no other model. They are few, so that few
        # pictures are in memory at once.
        self._workers = WorkerPool(NUM_WORKERS, worker_name(bundle), metrics, failure_budget)
        # A constraint can take a worker hundreds of times as long as a text. So texts do not wait behind any.
        self.building = building
        self.failure_budget = failure_budget
        self._claim = claim
        # Where its lanes are.
        self.devices = [device.name for device in claim.devices]
        # Calls that are answered by it, and monotonic seconds at which the last one ended, or its loading.
        self._num_calls = 0
        self.idle_since = time.monotonic()
        self._released = asyncio.Event()

    def hold(self) -> None:
        """Count a call that is answered by it."""
        self._num_calls += 1

    def release(self) -> None:
        """Count the end of such a call."""
        self._num_calls -= 1
        self.be_idle()
        self._released.set()

    def be_idle(self) -> None:
        """Count idle time from now."""
        self.idle_since = time.monotonic()

    async def unheld(self) -> None:
        """Wait until no call is answered by it."""
        while self._num_calls:
            self._released.clear()
            await self._released.wait()

    @property
    def idle_s(self) -> float:
        """Seconds since its last call ended, or its loading. 0 while it has a call."""
        return 0.0 if self._num_calls else time.monotonic() - self.idle_since

    async def work(self, job: Callable[[Wanted], Result], deadline: float = math.inf) -> Result:
        """Run `job` in one of the model's worker threads: off the event loop, off the engine's lanes.

        See `WorkerPool.work`.
        """
        return await self._workers.work(job, deadline)

    def constrain(
        self, asked: common_pb2.Constraint, standing: Standing, wanted: Wanted | None, **more: Any
    ) -> Constraint:
        """Do as Grammars.build for a request, within a job of `building`, and count time and memory."""
        started = time.monotonic()
        constraint = self.grammars.build(asked, tenant=standing.tenant, wanted=wanted, **more)
        HELD.hold(constraint, standing.tenant)
        self.metrics.constraint_build.observe(time.monotonic() - started)
        return constraint

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokenizer of what it reads. Not for a model that reads no text."""
        assert self._source_tokenizer is not None, "a model that reads text has no tokenizer. This is a bug."
        return self._source_tokenizer

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of what it writes. Not for a model that produces no text."""
        assert self._target_tokenizer is not None, "a model that produces text has no tokenizer. This is a bug."
        return self._target_tokenizer

    @property
    def engines(self) -> list[Engine]:
        """That which produces answers, that which scores given ones, and that which sees, if there are such."""
        return [engine for engine in (self.engine, self.scorer, self.sight) if engine is not None]

    async def start(self) -> None:
        """Start the lanes of all engines, and wait until each lane is warm. Raises what the warm-up of one raises.

        This is for a thread that does not give way: threads inherit that.
        """
        for warm in [warm for engine in self.engines for warm in engine.start()]:
            await asyncio.wrap_future(warm)

    def stats(self) -> EngineStats:
        """A snapshot of all engines, for gauges."""
        stats = reduce(EngineStats.beside, (each.stats() for each in (self.engine, self.scorer) if each))
        if self.sight is None:
            return stats
        return stats.seen_by(self.sight.stats(), self.seeing.num_requests, time.monotonic() - self.seeing.oldest)

    @property
    def last_beat(self) -> float:
        """Monotonic seconds of the slowest lane's last sign of life."""
        return min(engine.last_beat for engine in self.engines)

    @property
    def has_failed(self) -> bool:
        """Whether lanes and workers have failed too often. The server is to end then."""
        return self.failure_budget.is_spent

    def supervise(self, timeout_s: float) -> None:
        """Give up lanes and workers that are at one thing for longer than `timeout_s` seconds, and replace them.

        If too many have failed, end all that the model has, now and from now on.
        """
        for engine in self.engines:
            engine.supervise(timeout_s)
        for each in (self._workers, self.building, self.tokenizing, self.explainer):
            if each:
                each.supervise(timeout_s)
        if self.has_failed:
            self.cancel_all(ModelFailed)

    def cancel_all(self, outcome: Callable[[], Exception]) -> None:
        """End everything that engines, workers and explainer have. Each request gets an outcome of its own."""
        for each in (*self.engines, self._workers, self.building, self.tokenizing, self.explainer):
            if each:
                each.cancel_all(outcome)

    def stop(self, timeout: float) -> bool:
        """Stop lanes, workers and explainer. Returns whether all of them ended within `timeout` seconds.

        Then other models may be placed where it was. Those that did not end hold its memory.
        """
        give_up = time.monotonic() + timeout
        self._workers.stop()
        self.building.stop()
        self.tokenizing.stop()
        if self.explainer:
            self.explainer.stop()
        stopped = [engine.stop(max(0.0, give_up - time.monotonic())) for engine in self.engines]
        # After the lanes: those that still step have their constraints followed.
        self.grammars.stop()
        prefix = worker_name(self.bundle)
        while any(thread.name.startswith(prefix) for thread in threading.enumerate()):
            if time.monotonic() > give_up:
                return False
            time.sleep(0.01)
        if not all(stopped):
            return False
        self._claim.release()
        return True

    def __repr__(self) -> str:
        return f"<Model {self.name}/{self.version} {self.engine!r}>"
