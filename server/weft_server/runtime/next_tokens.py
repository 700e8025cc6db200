"""Where runs write what they say about each row's next token, and what the sampler gets of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from weft_proto.bundle_rules import CANDIDATE_PORTS
from weft_proto.v1 import bundle_pb2
from weft_server.runtime.buffers import Logits, NoRows, Outputs
from weft_server.runtime.cuda.drawing import TOTAL_WEIGHTS
from weft_server.sampling.candidates import Candidates

if TYPE_CHECKING:
    from weft_server.runtime.blocks import Block
    from weft_server.runtime.device import Device


_BEST = CANDIDATE_PORTS[:2]


class Given(Protocol):
    """What runs give of a row: see FullLogits."""

    # Candidates of a row that is read as a whole, and of another.
    num_candidates: int
    num_best: int
    # Whether a run that is read as a whole says what all tokens weigh.
    weighs: bool


class NextTokens:
    """The candidates of each slot. Runs that are read as a whole give the normaliser and all logits too."""

    def __init__(self, num_slots: int, given: Given, vocab: int, device: Device) -> None:
        self._in_place = device.in_place
        best = (num_slots, given.num_candidates)
        arrays: dict[str, np.ndarray] = {
            "topk_logits": np.zeros(best, np.float32),
            "topk_ids": np.zeros(best, np.int64),
            "logsumexp": np.zeros(num_slots, np.float32),
        }
        if given.weighs:
            arrays[TOTAL_WEIGHTS] = np.zeros(num_slots, np.float32)
        self._outputs = self._few = Outputs(arrays, device)
        if given.num_best < given.num_candidates:
            few = {name: arrays[name][:, : given.num_best].copy() for name in _BEST}
            self._few = Outputs(few, device)
        self._logits = Logits(np.zeros((num_slots, vocab), np.float32), device)
        self._unknown = np.full(num_slots, np.nan, np.float32)
        self._seen: dict[tuple[int, bool], Candidates] = {}

    def blocks(self, num_rows: int, *, reads_all: bool) -> dict[str, Block]:
        """Where a run of `num_rows` rows writes."""
        if reads_all:
            return self._outputs.blocks(num_rows) | {"logits": self._logits.block(num_rows)}
        return {name: block for name, block in self._few.blocks(num_rows).items() if name in _BEST}

    def read(self, num_written: int, num_rows: int, *, reads_all: bool) -> Candidates:
        """Return what the last run wrote, cut to the rows that count. In place, that is always the same memory."""
        key = (num_rows, reads_all)
        if key in self._seen:
            return self._seen[key]
        written = (self._outputs if reads_all else self._few).read(num_written)
        candidates = Candidates(
            written["topk_logits"][:num_rows],
            written["topk_ids"][:num_rows],
            (written["logsumexp"] if reads_all else self._unknown)[:num_rows],
            self._logits.read(num_rows) if reads_all else NoRows(),
            total_weights=written[TOTAL_WEIGHTS][:num_rows] if reads_all and TOTAL_WEIGHTS in written else None,
        )
        if self._in_place:
            self._seen[key] = candidates
        return candidates


def candidates_of(manifest: bundle_pb2.BundleManifest) -> int:
    """Return how many candidates a run of the decoder gives for each row."""
    graph = next(graph for graph in manifest.graphs if graph.role == bundle_pb2.GRAPH_ROLE_DECODER)
    size = int(next(port for port in graph.outputs if port.name == "topk_ids").shape[-1])
    return min(size, manifest.text.target_vocab_size)
