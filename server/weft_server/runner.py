"""Runs a decoder's graphs over slot-major state tensors: encode, prefill, decode, move. Arrays without policy.

Nothing here knows a family. The manifest's state tensors say what a slot holds, and each kind has one rule:
a kv_cache is appended in place, a memory is written at admission, a recurrent state flips between two buffers, and
with one of those each run reads one token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weft_proto.v1 import bundle_pb2
from weft_server.sampler import Candidates

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from weft_server.session import Bound, Session
    from weft_server.slots import Slots

PREFILL_BUCKETS = (16, 32, 64, 128)
PREFILL_CHUNK = PREFILL_BUCKETS[-1]
_DTYPES = {bundle_pb2.DATA_TYPE_FLOAT32: np.float32, bundle_pb2.DATA_TYPE_FLOAT16: np.float16}


class State:
    """One state tensor over all slots, [slots, shape...]; a recurrent one has two such buffers that change roles."""

    def __init__(self, spec: bundle_pb2.StateTensor, num_slots: int) -> None:
        self.spec = spec
        self.recurrent = spec.kind == bundle_pb2.STATE_KIND_RECURRENT
        self.memory = spec.kind == bundle_pb2.STATE_KIND_MEMORY
        shape = (2 if self.recurrent else 1, num_slots, *spec.shape)
        self.buffers: np.ndarray = np.zeros(shape, _DTYPES[spec.data_type])

    def past(self, flip: int) -> np.ndarray:
        """What the next run reads, [slots, shape...]."""
        buffer: np.ndarray = self.buffers[flip if self.recurrent else 0]
        return buffer

    def present(self, flip: int) -> np.ndarray:
        """What the next run writes: the same memory, or the other buffer of a recurrent state."""
        buffer: np.ndarray = self.buffers[1 - flip if self.recurrent else 0]
        return buffer

    def write(self, slot: int, flip: int, value: np.ndarray, length: int) -> None:
        """Start a slot's state with the encoder's output, cut to `length`."""
        target = self.past(flip)[slot]
        if self.recurrent:
            target[...] = value
        else:
            self._head(target, length)[...] = self._head(value, length)

    def move(self, source: int, target: int, flip: int, length: int) -> None:
        """Copy one slot's state to another, as far as it is valid."""
        past = self.past(flip)
        if self.recurrent:
            past[target] = past[source]
        else:
            self._head(past[target], length)[...] = self._head(past[source], length)

    def _head(self, array: np.ndarray, length: int) -> np.ndarray:
        return array[(slice(None),) * self.spec.length_axis + (slice(length),)]


@dataclass(slots=True)
class Chunk:
    """Where one prefill run puts its input: a binding for one (slot, padded length)."""

    bound: Bound
    input_ids: np.ndarray  # [1, bucket]
    past_lengths: np.ndarray  # [1]
    lengths: np.ndarray  # [1]


class DecodeRunner:
    """A decoder bound to one lane's slots. Running rows are a prefix of the slots: a batch is a view, never a copy."""

    def __init__(
        self, manifest: bundle_pb2.BundleManifest, encoder: Session | None, decoder: Session, slots: Slots
    ) -> None:
        self._encoder, self._decoder, self._slots = encoder, decoder, slots
        self._states = [State(spec, slots.num_slots) for spec in manifest.states]
        self._has_memory = any(state.memory for state in self._states)
        self._has_cache = any(spec.kind == bundle_pb2.STATE_KIND_KV_CACHE for spec in manifest.states)
        self._flips = any(state.recurrent for state in self._states)
        self._flip = 0
        self._max_total = manifest.text.max_total_tokens
        self._pad_id = manifest.text.pad_id
        self._lengths = np.ones(slots.num_slots, np.int32)
        self._total_length = np.array([self._max_total], np.int32)
        num_candidates = min(_fixed_size(manifest, "topk_ids"), manifest.text.target_vocab_size)
        self._outputs: dict[str, np.ndarray] = {
            "topk_logits": np.zeros((slots.num_slots, num_candidates), np.float32),
            "topk_ids": np.zeros((slots.num_slots, num_candidates), np.int64),
            "logsumexp": np.zeros(slots.num_slots, np.float32),
            "logits": np.zeros((slots.num_slots, manifest.text.target_vocab_size), np.float32),
        }
        self._decodes: dict[tuple[int, int], Bound] = {}
        self._chunks: dict[tuple[int, int, int], Chunk] = {}

    @property
    def kv_capacity(self) -> int:
        """Cache entries (tokens) that all slots together can hold."""
        return self._slots.num_slots * self._max_total if self._has_cache else 0

    @property
    def chunk(self) -> int:
        """Prompt tokens that one prefill run reads at most."""
        return 1 if self._flips else PREFILL_CHUNK

    def begin(self, slot: int) -> None:
        """Start a slot for a new sequence: a recurrent state starts at zero, unless an encoder fills it."""
        for state in self._states:
            if state.recurrent:
                state.past(self._flip)[slot] = 0

    def encode(self, inputs: Many[np.ndarray], slots: Many[int]) -> None:
        """Run the encoder on inputs of one padded length and write what it fills into each one's slot."""
        assert self._encoder is not None, "this model has no encoder. This is a bug."
        outputs = self._encoder.run(encoder_feeds(inputs, self._pad_id))
        for row, slot in enumerate(slots):
            length = int(self._slots.memory_lengths[slot])
            for state in self._states:
                if state.spec.encoder_output:
                    state.write(slot, self._flip, outputs[state.spec.encoder_output][row], length)

    def prefill(self, slot: int, token_ids: np.ndarray) -> tuple[int, Candidates]:
        """Append up to `chunk` prompt tokens to the slot's state.

        Returns the number of tokens computed, padding included, and candidates [1, ...] after the last real one.
        """
        past = int(self._slots.past_lengths[slot])
        bucket = self._bucket(len(token_ids), past)
        chunk = self._chunk(slot, bucket)
        chunk.input_ids[0, : len(token_ids)] = token_ids
        chunk.input_ids[0, len(token_ids) :] = self._pad_id
        chunk.past_lengths[0] = past
        chunk.lengths[0] = len(token_ids)
        chunk.bound.run()
        self._slots.past_lengths[slot] = past + len(token_ids)
        self._turn(slot, slot + 1)
        return bucket, self._candidates(slot, slot + 1)

    def decode(self, num_rows: int) -> Candidates:
        """Feed each of the first `num_rows` slots its input id; candidates [num_rows, ...]."""
        key = (num_rows, self._flip)
        if key not in self._decodes:
            columns = self._slots
            self._decodes[key] = self._bind(0, num_rows, columns.input_ids, columns.past_lengths, self._lengths)
        self._decodes[key].run()
        self._slots.past_lengths[:num_rows] += 1
        self._turn(0, num_rows)
        return self._candidates(0, num_rows)

    def move(self, source: int, target: int) -> None:
        """Move a slot's state into a hole."""
        past, memory = int(self._slots.past_lengths[source]), int(self._slots.memory_lengths[source])
        for state in self._states:
            state.move(source, target, self._flip, memory if state.memory else past)

    def warm(self) -> None:
        """Run every decode batch and prefill bucket once, so that no request pays for first shapes."""
        for num_rows in range(1, self._slots.num_slots + 1):
            for _ in range(1 + self._flips):  # each order of the two buffers is a binding of its own
                self.decode(num_rows)
            self._slots.past_lengths[:] = 0
        if self._encoder is None:
            for length in [1] if self._flips else PREFILL_BUCKETS:
                self.prefill(0, np.full(min(length, self._max_total), self._pad_id))
                self._slots.past_lengths[:] = 0

    def _bucket(self, length: int, past: int) -> int:
        """Padded length of a chunk: it depends on the prompt alone, and never runs over the end of the cache."""
        assert length <= self.chunk, "a chunk is longer than the largest bucket. This is a bug."
        if self._flips:
            return 1
        return min(next(bucket for bucket in PREFILL_BUCKETS if bucket >= length), self._max_total - past)

    def _chunk(self, slot: int, bucket: int) -> Chunk:
        key = (slot, bucket, self._flip)
        if key not in self._chunks:
            ids = np.zeros((1, bucket), np.int64)
            past, length = np.zeros(1, np.int32), np.ones(1, np.int32)
            self._chunks[key] = Chunk(self._bind(slot, slot + 1, ids, past, length), ids, past, length)
        return self._chunks[key]

    def _bind(self, start: int, stop: int, ids: np.ndarray, past: np.ndarray, lengths: np.ndarray) -> Bound:
        num_rows = stop - start
        inputs: dict[str, np.ndarray] = {
            "input_ids": ids[:num_rows],
            "past_lengths": past[:num_rows],
            "lengths": lengths[:num_rows],
            "total_length": self._total_length,
        }
        if self._has_memory:
            inputs["memory_lengths"] = self._slots.memory_lengths[start:stop]
        outputs = {name: array[start:stop] for name, array in self._outputs.items()}
        for state in self._states:
            inputs[state.spec.past] = state.past(self._flip)[start:stop]
            # A memory without a present is read where it lies, and nothing is written.
            if state.spec.present:
                outputs[state.spec.present] = state.present(self._flip)[start:stop]
        return self._decoder.bind(inputs, outputs)

    def _turn(self, start: int, stop: int) -> None:
        """Change the roles of the recurrent buffers; held rows outside the run keep theirs by a copy."""
        if not self._flips:
            return
        held = self._slots.num_running + 1  # with the one in prefill
        for state in self._states:
            if state.recurrent:
                past, present = state.past(self._flip), state.present(self._flip)
                present[:start] = past[:start]
                present[stop:held] = past[stop:held]
        self._flip = 1 - self._flip

    def _candidates(self, start: int, stop: int) -> Candidates:
        return Candidates(**{name: array[start:stop] for name, array in self._outputs.items()})


def encoder_feeds(inputs: Many[np.ndarray], pad_id: int) -> dict[str, np.ndarray]:
    """Feeds of an encoder, classifier or tagger: pixels stacked, or ids padded to their common bucket."""
    if inputs[0].ndim == 3:
        return {"pixel_values": np.stack(inputs)}
    lengths = np.array([len(ids) for ids in inputs], np.int32)
    bucket = -(-int(lengths.max()) // 8) * 8
    input_ids = np.full((len(inputs), bucket), pad_id, np.int64)
    for row, ids in enumerate(inputs):
        input_ids[row, : len(ids)] = ids
    return {"input_ids": input_ids, "lengths": lengths}


def _fixed_size(manifest: bundle_pb2.BundleManifest, port_name: str) -> int:
    graph = next(graph for graph in manifest.graphs if graph.role == bundle_pb2.GRAPH_ROLE_DECODER)
    return int(next(port for port in graph.outputs if port.name == port_name).shape[-1])
