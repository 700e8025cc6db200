"""A model's EXPLAIN graph: which attention a request may read, and what a finished answer attended to."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.bundle_manifest import PRODUCES_TEXT
from weft_server.errors import InvalidRequest, Overloaded
from weft_server.scheduler import RETRY_AFTER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_proto.v1 import bundle_pb2, common_pb2
    from weft_server.metrics import ModelMetrics
    from weft_server.session import Session

_ALL = -1


class Reading(NamedTuple):
    """Which attention to read; no layer means the graph's summary of all layers, no head the average over heads."""

    layer: int | None
    head: int | None


class Explanation(NamedTuple):
    """What an answer attended to: weights float32 [rows, source], each row summing to 1, and source_mass [rows]."""

    weights: np.ndarray
    source_mass: np.ndarray


class Explainer:
    """Repeats finished answers in a pass of its own, apart from the engine. `explain` may be called from any thread."""

    def __init__(
        self, manifest: bundle_pb2.BundleManifest, session: Session, metrics: ModelMetrics, max_waiting: int
    ) -> None:
        self._attention, self._text = manifest.attention, manifest.text
        self._writes = manifest.task in PRODUCES_TEXT
        self._session, self._metrics = session, metrics
        self._num_waiting, self._max_waiting = 0, max_waiting

    def check_room(self) -> None:
        """Raise Overloaded when too many finished answers wait for their explanation."""
        if self._num_waiting >= self._max_waiting:
            sentence = f"{self._max_waiting} answers are waiting for their explanation already"
            raise Overloaded("QUEUE_FULL", sentence, RETRY_AFTER_S)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a finished answer among those that wait until its explanation is there."""
        self._num_waiting += 1
        try:
            yield
        finally:
            self._num_waiting -= 1

    def resolve(self, requested: common_pb2.Explain) -> Reading:
        """Check what a request asks to read, and fill in the model's default; raises InvalidRequest."""
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

    def explain(self, inputs: np.ndarray, token_ids: list[int], reading: Reading) -> Explanation:
        """Compute what was attended to; `token_ids` are the produced ones, none unless the model produces text."""
        # A batch of one and no padding: pixels [1, C, H, W], or ids [1, length].
        feeds = {"pixel_values": inputs[None]}
        if inputs.ndim == 1:
            feeds = {"input_ids": inputs[None], "lengths": np.array([len(inputs)], np.int32)}
        if self._writes:
            start = [self._text.start_id] if self._text.HasField("start_id") else []
            feeds["target_ids"] = np.array([[*start, *token_ids[:-1]]], np.int64)
        for name, index in reading._asdict().items():
            feeds[name] = np.array([_ALL if index is None else index], np.int64)
        started = time.monotonic()
        outputs = self._session.run(feeds)
        self._metrics.explain.observe(time.monotonic() - started)
        return Explanation(outputs["weights"], outputs["source_mass"])
