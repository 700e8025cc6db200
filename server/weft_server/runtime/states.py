"""A lane's state tensors over all slots, in the host's memory, where runs read and write them in place.

Nothing here knows a family. The manifest says what a slot holds, and each kind has one rule:

1. A kv_cache is appended in place.
2. A memory is written at admission.
3. A recurrent state flips between two buffers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

from weft_proto.v1 import bundle_pb2
from weft_server.runtime.blocks import block_of
from weft_server.runtime.huge_pages import zeros

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.runtime.blocks import Block
    from weft_server.runtime.session import Arrays, Session

# numpy has no bfloat16. What runs on the host has no kernels for it either.
DTYPES = {
    bundle_pb2.DATA_TYPE_FLOAT32: np.float32,
    bundle_pb2.DATA_TYPE_FLOAT16: np.float16,
    bundle_pb2.DATA_TYPE_INT8: np.int8,
}


class States(Protocol):
    """What a runner asks of its states, wherever they lie. `flip` says which recurrent buffer is read next."""

    flip: int

    def blocks(self, start: int, stop: int) -> tuple[dict[str, Block], dict[str, Block]]:
        """Return what the next run over slots [start, stop) reads and what it writes, by port."""

    def begin(self, slot: int) -> None:
        """Start a slot for a new sequence: a recurrent state starts at zero, unless an encoder fills it."""

    def fill(self, encoder: Session, feeds: Arrays, slots: Many[int], lengths: Many[int]) -> None:
        """Run an encoder and write each row of what it fills into its slot, as long as its source is."""

    def move(self, source: int, target: int, past: int, memory: int) -> None:
        """Copy a slot onto another, as far as `past` tokens and `memory` source positions are valid."""

    def fork(self, sources: np.ndarray, targets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
        """Copy slots onto others that hold the same memory and the same first `starts` tokens, pair by pair.

        All are int64 [pairs]. `stops` are how many tokens the sources hold. No target is a source.
        """

    def turn(self, start: int, stop: int, held: int) -> None:
        """Change the roles of the recurrent buffers after a run over [start, stop). Other `held` slots keep theirs.

        Or let them keep their roles, and copy back what the run wrote, where that is less.
        """


# Measured: from so many tokens on, slices of a pair of slots are copied sooner than its tokens one by one.
_LONG = 8


class StatePlaces:
    """Where the tokens [start, stop) of pairs of slots lie in tensors [slots, outer, length, inner].

    Long ones are stretches, (source, target, start, stop). All others are copied together, by `within`.
    """

    def __init__(self, sources: np.ndarray, targets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
        is_long = stops - starts >= _LONG
        self.stretches: list[list[int]] = np.stack([sources, targets, starts, stops], axis=1)[is_long].tolist()
        sources, targets, starts, stops = (each[~is_long] for each in (sources, targets, starts, stops))
        lengths = stops - starts
        ends = lengths.cumsum()
        pairs = np.arange(len(sources)).repeat(lengths)
        # Counts up from its start in each pair.
        self._tokens = np.arange(len(pairs)) + (starts - ends + lengths)[pairs]
        self._sources, self._targets = sources[pairs], targets[pairs]
        self._seen: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

    def within(self, outer: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the sources and those of the targets in a tensor as [slots * outer * length, inner]."""
        if (outer, length) not in self._seen:
            parts = np.arange(outer)[:, None] * length + self._tokens
            read, written = (parts + slots * (outer * length) for slots in (self._sources, self._targets))
            self._seen[outer, length] = read.ravel(), written.ravel()
        return self._seen[outer, length]


class State:
    """One state tensor over all slots, [slots, shape...]. A recurrent one has two such buffers that change roles."""

    def __init__(self, spec: bundle_pb2.StateTensor, num_slots: int) -> None:
        self.spec = spec
        self.recurrent = spec.kind == bundle_pb2.STATE_KIND_RECURRENT
        self.memory = spec.kind == bundle_pb2.STATE_KIND_MEMORY
        shape = (2 if self.recurrent else 1, num_slots, *spec.shape)
        self.buffers: np.ndarray = zeros(shape, np.dtype(DTYPES[spec.data_type]))
        # What a head has of one token, as an item of bytes: one index says which slot, which head and which token. So
        # numpy copies it at once, which takes two thirds of the time of copying its numbers.
        inner = 1 if self.recurrent else math.prod(spec.shape[spec.length_axis + 1 :])
        self.tokens = self.buffers.reshape(-1, inner).view(f"V{inner * self.buffers.itemsize}").ravel()

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

    def fork(self, sources: np.ndarray, targets: np.ndarray, flip: int, places: StatePlaces) -> None:
        """Copy slots onto others: a recurrent state as a whole, and of a cache what lies at `places`."""
        if self.recurrent:
            past = self.past(flip)
            past[targets] = past[sources]
        elif not self.memory:
            axis = self.spec.length_axis
            read, written = places.within(math.prod(self.spec.shape[:axis]), self.spec.shape[axis])
            self.tokens[written] = self.tokens[read]
            for source, target, start, stop in places.stretches:
                part = (slice(None),) * axis + (slice(start, stop),)
                self.buffers[0, target][part] = self.buffers[0, source][part]

    def _head(self, array: np.ndarray, length: int) -> np.ndarray:
        return array[(slice(None),) * self.spec.length_axis + (slice(length),)]


class HostStates:
    """States in the host's memory. Only the valid part of a slot is ever copied."""

    def __init__(self, specs: Iterable[bundle_pb2.StateTensor], num_slots: int) -> None:
        self.flip = 0
        self.states = [State(spec, num_slots) for spec in specs]
        self._recurrent = [state for state in self.states if state.recurrent]

    def blocks(self, start: int, stop: int) -> tuple[dict[str, Block], dict[str, Block]]:
        """See States."""
        inputs, outputs = {}, {}
        for state in self.states:
            inputs[state.spec.past] = block_of(state.past(self.flip)[start:stop])
            # A memory without a present is read where it lies, and nothing is written.
            if state.spec.present:
                outputs[state.spec.present] = block_of(state.present(self.flip)[start:stop])
        return inputs, outputs

    def begin(self, slot: int) -> None:
        """See States."""
        for state in self._recurrent:
            state.past(self.flip)[slot] = 0

    def fill(self, encoder: Session, feeds: Arrays, slots: Many[int], lengths: Many[int]) -> None:
        """See States."""
        outputs = encoder.run(feeds)
        for row, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
            for state in self.states:
                if state.spec.encoder_output:
                    state.write(slot, self.flip, outputs[state.spec.encoder_output][row], length)

    def move(self, source: int, target: int, past: int, memory: int) -> None:
        """See States."""
        for state in self.states:
            state.move(source, target, self.flip, memory if state.memory else past)

    def fork(self, sources: np.ndarray, targets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
        """See States."""
        places = StatePlaces(sources, targets, starts, stops)
        for state in self.states:
            state.fork(sources, targets, self.flip, places)

    def turn(self, start: int, stop: int, held: int) -> None:
        """See States."""
        if not self._recurrent:
            return
        turns = 2 * (stop - start) >= held
        for state in self._recurrent:
            past, present = state.past(self.flip), state.present(self.flip)
            if turns:
                present[:start] = past[:start]
                present[stop:held] = past[stop:held]
            else:
                past[start:stop] = present[start:stop]
        if turns:
            self.flip = 1 - self.flip
