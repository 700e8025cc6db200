"""Caches in blocks, in a device's memory: keys and values of whichever rows hold the blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.runtime.copies import Copies
from weft_server.runtime.device_states import ELEMENT_TYPES
from weft_server.runtime.session import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_proto.v1 import bundle_pb2
    from weft_server.runtime.blocks import Block
    from weft_server.runtime.device import Device


class PagedStates:
    """All caches of a decoder, [num_blocks, block_tokens, kv_heads, head_dim] each. A run reads and writes them."""

    def __init__(self, specs: Iterable[bundle_pb2.StateTensor], num_blocks: int, device: Device) -> None:
        self._specs = list(specs)
        self._caches = [
            Value((num_blocks, *spec.shape), ELEMENT_TYPES[spec.data_type], device).block for spec in self._specs
        ]
        self._copies = Copies(len(self._caches), device)
        self._clear(num_blocks, device)

    def ports(self) -> tuple[dict[str, Block], dict[str, Block]]:
        """Return what each run reads and what it writes, by port. Both are the same memory."""
        pairs = list(zip(self._specs, self._caches, strict=True))
        return {spec.past: cache for spec, cache in pairs}, {spec.present: cache for spec, cache in pairs}

    def copy(self, source: int, target: int) -> None:
        """Copy a block of each cache onto another."""
        self._copies.run(list(zip(self._rows(source, source + 1), self._rows(target, target + 1), strict=True)))

    def _clear(self, num_blocks: int, device: Device) -> None:
        """Fill all blocks with zeros. Fresh memory may hold NaN, which no kernel should have to keep out."""
        zeros = np.zeros(max(cache.rows(0, 1).num_bytes for cache in self._caches), np.uint8)
        empty = Value.like(zeros, device)
        empty.send(zeros)
        self._copies.run([(empty.block.rows(0, one.num_bytes), one) for one in self._rows(0, 1)])
        num_clear = 1
        while num_clear < num_blocks:
            num_more = min(num_clear, num_blocks - num_clear)
            clear, more = self._rows(0, num_more), self._rows(num_clear, num_clear + num_more)
            self._copies.run(list(zip(clear, more, strict=True)))
            num_clear += num_more

    def _rows(self, start: int, stop: int) -> list[Block]:
        """Blocks [start, stop) of each cache."""
        return [cache.rows(start, stop) for cache in self._caches]
