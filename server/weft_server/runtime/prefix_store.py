"""Parts of slots' states beside the slots, in the host's memory: any lane copies them there and back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from weft_proto.v1 import bundle_pb2
from weft_server.runtime.states import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.runtime.states import HostStates, State


def kept_states(specs: Iterable[bundle_pb2.StateTensor]) -> list[bundle_pb2.StateTensor]:
    """Return the states that reading an input fills: what an encoder writes or, where there is none, all."""
    specs = list(specs)
    return [spec for spec in specs if spec.encoder_output] or specs


def bytes_of_place(specs: Iterable[bundle_pb2.StateTensor], size: int) -> int:
    """How many bytes a place of `size` positions takes."""
    return sum(math.prod(_shape(spec, size)) * np.dtype(DTYPES[spec.data_type]).itemsize for spec in specs)


class PrefixStore:
    """Places, each for `size` positions of the states that `specs` name. A recurrent state is one value a place.

    It knows nothing of who uses which place: that is the prefix cache's. Its memory is taken when it is first written.
    """

    def __init__(self, specs: Iterable[bundle_pb2.StateTensor], num_places: int, size: int) -> None:
        self.size = size
        specs = list(specs)
        self._grows = any(spec.kind != bundle_pb2.STATE_KIND_RECURRENT for spec in specs)
        self._arrays = {
            spec.past: np.zeros((num_places, *_shape(spec, size)), DTYPES[spec.data_type]) for spec in specs
        }

    def keep(self, places: Many[int], states: HostStates, slot: int, start: int, stop: int) -> None:
        """Copy positions [start, stop) of a slot into `places`, in their order. The last one may stay partly empty.

        A recurrent state goes along as it is now, so `stop` has to be where it has come to.
        """
        for state, array in self._held(states):
            past = state.past(states.flip)
            if state.recurrent:
                array[places[-1]] = past[slot]
                continue
            for place, (first, last) in zip(places, self._parts(start, stop), strict=True):
                array[_at(state, place, 0, last - first)] = past[_at(state, slot, first, last)]

    def give(self, places: Many[int], states: HostStates, slot: int, start: int, stop: int) -> None:
        """Copy them back, into any slot of any lane. No places are no change."""
        if not places:
            return
        for state, array in self._held(states):
            past = state.past(states.flip)
            if state.recurrent:
                past[slot] = array[places[-1]]
                continue
            for place, (first, last) in zip(places, self._parts(start, stop), strict=True):
                past[_at(state, slot, first, last)] = array[_at(state, place, 0, last - first)]

    def num_places(self, length: int) -> int:
        """How many places so many positions take."""
        return -(-length // self.size) if self._grows else 1

    def _held(self, states: HostStates) -> list[tuple[State, np.ndarray]]:
        arrays = self._arrays
        return [(state, arrays[state.spec.past]) for state in states.states if state.spec.past in arrays]

    def _parts(self, start: int, stop: int) -> list[tuple[int, int]]:
        return [(first, min(first + self.size, stop)) for first in range(start, stop, self.size)]


def _shape(spec: bundle_pb2.StateTensor, size: int) -> list[int]:
    """The shape of a state's part in one place."""
    shape = list(spec.shape)
    if spec.kind != bundle_pb2.STATE_KIND_RECURRENT:
        shape[spec.length_axis] = size
    return shape


def _at(state: State, row: int, start: int, stop: int) -> tuple[int | slice, ...]:
    """Positions [start, stop) of a row of [rows, shape...]."""
    return (row, *(slice(None),) * state.spec.length_axis, slice(start, stop))
