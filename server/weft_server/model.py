"""A loaded model: its bundle, what reads its inputs, its engine, and what explains its answers."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle_manifest import PRODUCES_TEXT
from weft_server.classify_lane import ClassifyLane
from weft_server.cpus import cpu_quota, share_cpus
from weft_server.decode_lane import DecodeLane
from weft_server.device import device_of, verify_precision
from weft_server.engine import Engine
from weft_server.errors import BundleError
from weft_server.explainer import Explainer
from weft_server.extremes import verify_classifier, verify_decoder, verify_explainer
from weft_server.inputs import InputReader
from weft_server.mixed_proof import verify_mixed
from weft_server.runner import PREFILL_BUCKETS, DecodeRunner
from weft_server.scheduler import Scheduler
from weft_server.session import Session
from weft_server.slots import Slots
from weft_server.tokenizer import Tokenizer
from weft_server.wanted import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.bundle import Bundle
    from weft_server.config import ServerConfig
    from weft_server.lane import Lane
    from weft_server.metrics import ModelMetrics

Result = TypeVar("Result")
NUM_WORKERS = 2


class Model:
    """One version of one model, able to answer. Building it opens sessions and tries their graphs, for seconds."""

    def __init__(
        self, bundle: Bundle, config: ServerConfig, metrics: ModelMetrics, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.bundle, self.metrics = bundle, metrics
        self.name, self.version = bundle.name, bundle.version
        self.manifest = manifest = bundle.manifest
        source, target = manifest.text.source_tokenizer, manifest.text.target_tokenizer
        self.source_tokenizer = Tokenizer(bundle.path(source)) if source else None
        self.target_tokenizer = Tokenizer(bundle.path(target)) if target else None
        if self.source_tokenizer and self.source_tokenizer.num_ids > manifest.text.source_vocab_size:
            raise BundleError(f"{source} has ids beyond text.source_vocab_size {manifest.text.source_vocab_size}")
        self.reader = InputReader(
            manifest,
            self.source_tokenizer,
            max_image_bytes=config.max_image_bytes,
            max_image_pixels=config.max_image_pixels,
        )
        self._device = device_of(config)
        verify_precision(manifest.precision, self._device)
        num_lanes, threads = share_cpus(config.lanes, config.threads, cpu_quota())
        if manifest.task in PRODUCES_TEXT and num_lanes > config.slots:  # a lane without a slot would never run
            num_lanes, threads = share_cpus(config.slots, config.threads, cpu_quota())
        self._threads = capped_threads(threads, manifest)
        if self._device.kind == "cuda":
            num_lanes = 1
        # A prefix of its threads' names; `stop` waits for them by it.
        self._worker_name = f"{self.name}/{self.version}-worker"
        self.explainer = self._explainer(config.max_queued_requests)
        scheduler = Scheduler(num_lanes, config.max_queued_requests, config.max_queued_tokens)
        if manifest.task in PRODUCES_TEXT:
            lanes = self._decode_lanes(num_lanes, config)
        else:
            lanes = self._classify_lanes(num_lanes, config)
        self.engine = Engine(scheduler, lanes, metrics, loop)
        # Its own, and few: a slow picture for one model holds up no other, and few pictures are in memory at once.
        self._workers = ThreadPoolExecutor(NUM_WORKERS, thread_name_prefix=self._worker_name)

    async def work(self, job: Callable[[Wanted], Result], deadline: float = math.inf) -> Result:
        """Run `job` in one of the model's worker threads: off the event loop, off the engine's lanes.

        Nobody waits for it after the deadline, in monotonic seconds, nor when whoever awaits it is cancelled. Then it
        does not begin, and ends with DeadlineExpired where it asks next.
        """
        wanted = Wanted(deadline)

        def run() -> Result:
            wanted.check()
            return job(wanted)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._workers, run)
        finally:
            wanted.give_up()

    def cancel_all(self, outcome: Callable[[], Exception]) -> None:
        """End all that the engine and the explainer have, each with an outcome of its own."""
        self.engine.cancel_all(outcome)
        if self.explainer:
            self.explainer.cancel_all(outcome)

    def stop(self, timeout: float) -> bool:
        """Stop lanes, workers and explainer; whether all of them ended within `timeout` seconds, or one is stuck."""
        give_up = time.monotonic() + timeout
        self._workers.shutdown(wait=False, cancel_futures=True)
        if self.explainer:
            self.explainer.stop()
        stopped = self.engine.stop(timeout)
        while any(thread.name.startswith(self._worker_name) for thread in threading.enumerate()):
            if time.monotonic() > give_up:
                return False
            time.sleep(0.01)
        return stopped

    def _explainer(self, max_asking: int) -> Explainer | None:
        session = self._open(bundle_pb2.GRAPH_ROLE_EXPLAIN)
        if session is None:
            return None
        name = f"{self._worker_name}-explain"
        explainer = Explainer(self.manifest, session, self.metrics, max_asking=max_asking, thread_name=name)
        verify_explainer(explainer, self.manifest)
        return explainer

    def _decode_lanes(self, num_lanes: int, config: ServerConfig) -> list[Lane]:
        encoder = self._open(bundle_pb2.GRAPH_ROLE_ENCODER)
        decoder = self._open(bundle_pb2.GRAPH_ROLE_DECODER, captures=self._device.captures)
        assert decoder is not None, "a bundle without its decoder was accepted. This is a bug."
        # A second copy of the weights, where it is of use: on a device it has not been tried, and a lane of one slot
        # has none for a prompt beside its row.
        may_mix = self._device.in_place and config.slots > num_lanes
        mixed = self._open(bundle_pb2.GRAPH_ROLE_MIXED) if may_mix else None
        text = self.manifest.text
        lanes: list[Lane] = []
        for index in range(num_lanes):
            # The slots are shared out as evenly as they go.
            num_slots = config.slots // num_lanes + (index < config.slots % num_lanes)
            slots = Slots(num_slots, text.max_new_tokens)
            runner = DecodeRunner(self.manifest, encoder, decoder, slots, mixed)
            runner.warm()
            if runner.mixes and index == 0:
                length = min(PREFILL_BUCKETS[0], text.max_total_tokens - 1)
                verify_mixed(runner, slots, np.arange(length) % text.target_vocab_size)
            if index == 0:
                verify_decoder(runner, slots, self.manifest)
            lane = DecodeLane(
                slots,
                runner,
                start_id=text.start_id if text.HasField("start_id") else None,
                end_ids=tuple(text.end_ids),
                prefill_budget=config.prefill_budget,
                metrics=self.metrics,
            )
            lanes.append(lane)
        return lanes

    def _classify_lanes(self, num_lanes: int, config: ServerConfig) -> list[Lane]:
        session = self._open(bundle_pb2.GRAPH_ROLE_CLASSIFIER) or self._open(bundle_pb2.GRAPH_ROLE_TAGGER)
        assert session is not None, "a bundle without its classifier or tagger was accepted. This is a bug."
        verify_classifier(session, self.manifest)
        return [
            ClassifyLane(
                session,
                per_token=self.manifest.task == common_pb2.TASK_TAG,
                pad_id=self.manifest.text.pad_id,
                max_batch=config.max_batch,
                batch_tokens=config.batch_tokens,
                metrics=self.metrics,
            )
            for _ in range(num_lanes)
        ]

    def _open(self, role: bundle_pb2.GraphRole.ValueType, *, captures: bool = False) -> Session | None:
        graph = self.bundle.graph(role)
        if graph is None:
            return None
        return Session(self.bundle.path(graph.path), self._threads, self._device, captures=captures)

    def __repr__(self) -> str:
        return f"<Model {self.name}/{self.version} {self.engine!r}>"


def capped_threads(threads: int, manifest: bundle_pb2.BundleManifest) -> int:
    """So many threads, but no more than one for each head of attention over a cache, if there is one.

    With more, ONNX Runtime splits the keys of a row of over 512 tokens among threads that would have no head. Whether
    there are such depends on who else runs, and so would the row's bits.
    """
    caches = [state for state in manifest.states if state.kind == bundle_pb2.STATE_KIND_KV_CACHE]
    # Where it is not said how many heads there are, there are at least those of keys and values.
    heads = manifest.attention.heads or [state.shape[0] for state in caches]
    return min(threads, *heads) if caches else threads
