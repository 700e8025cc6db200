"""A lane's state tensors in a device's memory: over all slots, or in blocks."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import onnx

from weft_proto.v1 import bundle_pb2
from weft_server.errors import BundleError
from weft_server.runtime.cuda.copies import Copies, Stretch
from weft_server.runtime.session import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Sequence as Many

    from weft_server.runtime.blocks import Block
    from weft_server.runtime.device import Device
    from weft_server.runtime.session import Arrays, Session

ELEMENT_TYPES = {
    bundle_pb2.DATA_TYPE_FLOAT32: onnx.TensorProto.FLOAT,
    bundle_pb2.DATA_TYPE_FLOAT16: onnx.TensorProto.FLOAT16,
    bundle_pb2.DATA_TYPE_BFLOAT16: onnx.TensorProto.BFLOAT16,
    bundle_pb2.DATA_TYPE_INT8: onnx.TensorProto.INT8,
}
_WORD = 4


class DeviceState:
    """One state tensor over all slots, [slots, shape...]. A recurrent one has two that change roles."""

    def __init__(self, spec: bundle_pb2.StateTensor, num_slots: int, device: Device) -> None:
        self.spec = spec
        self.recurrent = spec.kind == bundle_pb2.STATE_KIND_RECURRENT
        shape = (num_slots, *spec.shape)
        element_type = ELEMENT_TYPES[spec.data_type]
        self._blocks = [Value(shape, element_type, device).block for _ in range(2 if self.recurrent else 1)]
        # A slot is [outer, length, inner]. A recurrent one has a single position.
        self._outer = 1 if self.recurrent else math.prod(spec.shape[: spec.length_axis])
        self._length = 1 if self.recurrent else spec.shape[spec.length_axis]
        inner_bytes = self.past(0).rows(0, 1).num_bytes // (self._outer * self._length)
        if inner_bytes % _WORD:
            raise BundleError(f"state {spec.past!r} has {inner_bytes} bytes a position, no multiple of {_WORD}")
        self._inner = inner_bytes // _WORD
        # Of one slot.
        self.words = self._outer * self._length * self._inner

    def past(self, flip: int) -> Block:
        """What the next run reads, [slots, shape...]."""
        return self._blocks[flip if self.recurrent else 0]

    def present(self, flip: int) -> Block:
        """What the next run writes: the same memory, or the other buffer of a recurrent state."""
        return self._blocks[1 - flip if self.recurrent else 0]

    def positions(self, rows: Block, length: int | None = None) -> Block:
        """Rows of this state, or of what an encoder writes into it, as words [outer, length, inner]."""
        return rows.words(rows.shape[0] * self._outer, length or self._length, self._inner)


class DeviceStates:
    """States in a device's memory. Whole slots are copied: there, that costs less than saying which part."""

    def __init__(self, specs: Iterable[bundle_pb2.StateTensor], num_slots: int, device: Device) -> None:
        self.flip = 0
        self._states = [DeviceState(spec, num_slots, device) for spec in specs]
        self._recurrent = [state for state in self._states if state.recurrent]
        self._copy_one = Copies(1, device)
        self._copy_all = Copies(len(self._states), device)
        self._stretch = Stretch(device)
        zeros = np.zeros(max(state.words for state in self._states), np.float32)
        self._zeros = Value.like(zeros, device)
        self._zeros.send(zeros)
        # Attention multiplies what is masked out by 0. Fresh memory may hold values that this does not silence, such as
        # NaN.
        for state in self._states:
            for slot in range(num_slots):
                self._clear(state, slot)

    def blocks(self, start: int, stop: int) -> tuple[dict[str, Block], dict[str, Block]]:
        """See States."""
        inputs, outputs = {}, {}
        for state in self._states:
            inputs[state.spec.past] = state.past(self.flip).rows(start, stop)
            if state.spec.present:
                outputs[state.spec.present] = state.present(self.flip).rows(start, stop)
        return inputs, outputs

    def begin(self, slot: int) -> None:
        """See States."""
        for state in self._recurrent:
            self._clear(state, slot)

    def fill(self, encoder: Session, feeds: Arrays, slots: Many[int], lengths: Many[int]) -> None:  # noqa: ARG002
        """See States. Behind a source's end lies padding, which nothing reads."""
        outputs = encoder.run_there(feeds)
        for state in self._states:
            if state.spec.encoder_output:
                source = outputs[state.spec.encoder_output]
                length = 1 if state.recurrent else source.shape[1 + state.spec.length_axis]
                for rows, onto in _neighbours(slots):
                    written = state.positions(source.rows(*rows), length)
                    self._stretch.run(written, state.positions(state.past(self.flip).rows(*onto)))

    def move(self, source: int, target: int, past: int, memory: int) -> None:  # noqa: ARG002
        """See States."""
        rows = [state.past(self.flip) for state in self._states]
        self._copy_all.run([(row.rows(source, source + 1), row.rows(target, target + 1)) for row in rows])

    def fork(self, sources: np.ndarray, targets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:  # noqa: ARG002
        """See States. Memories are copied too, although both hold the same."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self.move(source, target, 0, 0)

    def turn(self, start: int, stop: int, held: int) -> None:
        """See States."""
        if not self._recurrent:
            return
        for first, last in ((0, start), (stop, held)):
            for state in self._recurrent if first < last else ():
                past, present = state.past(self.flip), state.present(self.flip)
                self._copy_one.run([(past.rows(first, last), present.rows(first, last))])
        self.flip = 1 - self.flip

    def _clear(self, state: DeviceState, slot: int) -> None:
        zeros = self._zeros.block.rows(0, state.words)
        self._copy_one.run([(zeros, state.past(self.flip).rows(slot, slot + 1))])


def _neighbours(slots: Many[int]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield [start, stop) of rows, and of the slots that they go to, as long as both count up together."""
    for _, group in groupby(enumerate(slots), key=lambda pair: pair[1] - pair[0]):
        pairs = list(group)
        row, slot = pairs[0]
        num = len(pairs)
        yield (row, row + num), (slot, slot + num)


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
