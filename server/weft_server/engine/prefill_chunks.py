"""Chunks of prompts: how many tokens a run reads of one, how far they are padded, and the arrays they lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.bundle_rules import FEATURES
from weft_proto.v1 import bundle_pb2
from weft_server.runtime.buffers import Columns
from weft_server.runtime.drawing import TEMPERATURES

if TYPE_CHECKING:
    from weft_server.runtime.device import Device

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


def fixed_columns(num_slots: int, width: int, device: Device) -> Columns:
    """Return what every decode run reads, and is sent once: a token of each row, and no picture of this width."""
    arrays: dict[str, np.ndarray] = {"lengths": np.ones(num_slots, np.int32)}
    if width:
        arrays[FEATURES] = np.zeros((num_slots, 1, width), np.float32)
    columns = Columns(arrays, device)
    columns.send()
    return columns


class PrefillChunk:
    """What prefill runs of one padded length read: tokens of one prompt, whatever its slot."""

    def __init__(self, bucket: int, device: Device, *, has_memory: bool, width: int, weighs: bool) -> None:
        """`width` is that of the features of pictures, if prompts may hold any. `weighs` is as in FullLogits."""
        self.bucket = bucket
        self._input_ids = np.zeros((1, bucket), np.int64)
        self._past_lengths = np.zeros(1, np.int32)
        self._lengths = np.ones(1, np.int32)
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
        self.columns = Columns(arrays, device)

    def fill(
        self, token_ids: np.ndarray, past: int, memory: int, pad_id: int, features: np.ndarray | None = None
    ) -> None:
        """Take the next tokens of a prompt of which `past` have been read, and the length of its slot's memory.

        Without features, what was there before is not read.
        """
        if features is not None:
            self._features[0, : len(features)] = features
        self._input_ids[0, : len(token_ids)] = token_ids
        self._input_ids[0, len(token_ids) :] = pad_id
        self._past_lengths[0] = past
        self._lengths[0] = len(token_ids)
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
        weighs: bool = False,
    ) -> None:
        self._device = device
        self._width = width
        self._has_memory = has_memory
        self._weighs = weighs
        self._max_total = max_total
        self._pad_id = pad_id
        self._one_by_one = one_by_one
        self._by_bucket: dict[int, PrefillChunk] = {}

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

    def filled(self, token_ids: np.ndarray, past: int, memory: int, features: np.ndarray | None = None) -> PrefillChunk:
        """The chunk that holds the next tokens of a prompt of which `past` have been read, beside such a memory.

        features: what is read at the places of pictures among them, float32 [tokens, width].
        """
        bucket = self._bucket(len(token_ids), past)
        if bucket not in self._by_bucket:
            self._by_bucket[bucket] = PrefillChunk(
                bucket, self._device, has_memory=self._has_memory, width=self._width, weighs=self._weighs
            )
        chunk = self._by_bucket[bucket]
        chunk.fill(token_ids, past, memory, self._pad_id, features)
        return chunk

    def _bucket(self, length: int, past: int) -> int:
        """Padded length of a chunk, which never runs over the end of the cache.

        It is two or more, because a prompt leaves room for a new token. One token alone takes another kernel and gets
        other bits, and how a prompt is cut must not show.
        """
        assert length <= self.buckets[-1], "a chunk is longer than the largest bucket. This is a bug."
        return min(next(bucket for bucket in self.buckets if bucket >= length), self._max_total - past)
