"""Chunks of prompts: how many tokens a run reads of one, how far they are padded, and the arrays they lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_proto.bundle_rules import FEATURES, POSITION_OFFSETS
from weft_proto.sight import NUM_AXES
from weft_proto.v1 import bundle_pb2
from weft_server.runtime.buffers import Columns
from weft_server.runtime.cuda.drawing import TEMPERATURES
from weft_server.source import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from weft_server.runtime.device import Device
    from weft_server.source import Beside

PREFILL_BUCKETS = (8, 16, 32, 64, 128)
PREFILL_CHUNK = PREFILL_BUCKETS[-1]
# On a device a new shape costs much. The small ones let the end of any prompt fit into some bucket, up to the cache's
# end. Less than the large ones does not keep a device busy, and each run costs it the reading of all weights.
DEVICE_BUCKETS = (2, 4, *PREFILL_BUCKETS, 256, 384, 512, 768, 1024, 1536, 2048)


def reads_one_by_one(manifest: bundle_pb2.BundleManifest) -> bool:
    """Whether a run of the decoder reads one token of a row, as its port of ids says."""
    decoder = next(graph for graph in manifest.graphs if graph.role == bundle_pb2.GRAPH_ROLE_DECODER)
    ids = next(port for port in decoder.inputs if port.name == "input_ids")
    return list(ids.shape[1:]) == ["1"]


class PrefillChunk:
    """What prefill runs of one padded length read: tokens of a prompt, or of several, whatever their slots."""

    def __init__(
        self,
        bucket: int,
        device: Device,
        *,
        num_rows: int = 1,
        has_memory: bool,
        width: int,
        offsets: bool,
        weighs: bool,
    ) -> None:
        """`width` is that of the features of pictures, if prompts may hold any. `offsets`: it is told positions too.

        `weighs` is as in FullLogits. Of several rows, the features and the memory are those of the first alone.
        """
        self.bucket = bucket
        # What runs are told that read several prompts: such a run is the first of each, and so long at most.
        self.total_length = np.array([bucket], np.int32)
        self._input_ids = np.zeros((num_rows, bucket), np.int64)
        self._past_lengths = np.zeros(num_rows, np.int32)
        self._lengths = np.ones(num_rows, np.int32)
        self._memory_lengths = np.ones(1, np.int32)
        arrays: dict[str, np.ndarray] = {
            "input_ids": self._input_ids,
            "past_lengths": self._past_lengths,
            "lengths": self._lengths,
        }
        if has_memory:
            arrays["memory_lengths"] = self._memory_lengths
        # At which temperature the row is drawn.
        self.temperatures = np.ones(1, np.float32)
        if weighs:
            arrays[TEMPERATURES] = self.temperatures
        self._features = np.zeros((1, bucket, width), np.float32)
        if width:
            arrays[FEATURES] = self._features
        self._offsets = np.zeros((1, bucket, NUM_AXES), np.int64)
        if offsets:
            arrays[POSITION_OFFSETS] = self._offsets
        self.columns = Columns(arrays, device)

    def fill_rows(self, prompts: Many[np.ndarray], pad_id: int) -> None:
        """Take whole prompts, one a row."""
        for row, token_ids in enumerate(prompts):
            self._input_ids[row, : len(token_ids)] = token_ids
            self._input_ids[row, len(token_ids) :] = pad_id
            self._lengths[row] = len(token_ids)

    def fill(self, token_ids: np.ndarray, past: int, memory: int, pad_id: int, beside: Beside) -> None:
        """Take the next tokens of a prompt of which `past` have been read, and the length of its slot's memory.

        Without features, what was there before is not read.
        """
        if beside.features is not None:
            self._features[0, : len(beside.features)] = beside.features
        self._offsets[0] = 0
        if beside.offsets is not None:
            self._offsets[0, : len(beside.offsets)] = beside.offsets
        self.fill_rows([token_ids], pad_id)
        self._past_lengths[0] = past
        self._memory_lengths[0] = memory


class PrefillChunks:
    """A decoder's chunks, one for each padded length. One that reads token by token has chunks of one."""

    def __init__(
        self,
        device: Device,
        *,
        max_total: int,
        pad_id: int,
        one_by_one: bool,
        has_memory: bool,
        width: int = 0,
        offsets: bool = False,
        weighs: bool = False,
    ) -> None:
        self._device = device
        self._kind: dict[str, Any] = {"has_memory": has_memory, "width": width, "offsets": offsets, "weighs": weighs}
        self._max_total = max_total
        self._pad_id = pad_id
        self._one_by_one = one_by_one
        self._by_bucket: dict[int, PrefillChunk] = {}
        self._joined: dict[int, PrefillChunk] = {}

    @property
    def buckets(self) -> tuple[int, ...]:
        """The padded lengths of chunks that end before the cache does, ascending."""
        if self._one_by_one:
            return (1,)
        return PREFILL_BUCKETS if self._device.in_place else DEVICE_BUCKETS

    def size(self, budget: int, past: int = 0) -> int:
        """Return how many tokens a run should read within `budget`: a bucket, so that nothing is padded.

        On a device it ends before the cache does, of which `past` places are taken.
        """
        most = budget if self._device.in_place else min(budget, self._max_total - past)
        return max((bucket for bucket in self.buckets if bucket <= most), default=self.buckets[0])

    def filled(
        self, token_ids: np.ndarray, past: int, memory: int, beside: Beside = NOTHING, *, num_rows: int = 0
    ) -> PrefillChunk:
        """The chunk that holds the next tokens of a prompt of which `past` have been read, beside such a memory.

        In its run, so many rows are given a token each.
        """
        bucket = self.bucket(len(token_ids), past, num_rows)
        if bucket not in self._by_bucket:
            self._by_bucket[bucket] = PrefillChunk(bucket, self._device, **self._kind)
        chunk = self._by_bucket[bucket]
        chunk.fill(token_ids, past, memory, self._pad_id, beside)
        return chunk

    def joined(self, prompts: Many[np.ndarray]) -> PrefillChunk:
        """The chunk that holds whole prompts, PREFILL_CHUNK tokens at most when padded to the longest one's bucket."""
        bucket = self.bucket(max(map(len, prompts)))
        if bucket not in self._joined:
            self._joined[bucket] = PrefillChunk(bucket, self._device, num_rows=PREFILL_CHUNK // bucket, **self._kind)
        self._joined[bucket].fill_rows(prompts, self._pad_id)
        return self._joined[bucket]

    def bucket(self, length: int, past: int = 0, num_rows: int = 0) -> int:
        """Padded length of a chunk, which never runs over the end of the cache.

        It is two or more, because a prompt leaves room for a new token. One token alone takes another kernel and gets
        other bits, and how a prompt is cut must not show. With the rows of its run it is such a multiple as the device
        says: one more or less than a bucket, perhaps.
        """
        assert length <= self.buckets[-1], "a chunk is longer than the largest bucket. This is a bug."
        bucket, room = next(bucket for bucket in self.buckets if bucket >= length), self._max_total - past
        if surplus := (bucket + num_rows) % self._device.row_multiple:
            bucket += -surplus if length < bucket else surplus
        return min(bucket, room - (room + num_rows) % self._device.row_multiple)
