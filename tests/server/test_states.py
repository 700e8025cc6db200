"""Laws of states in the host's memory: a fork copies what it is told to, and nothing else changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_proto.v1 import bundle_pb2
from weft_server.runtime.states import HostStates

SLOTS, LENGTH = 9, 20
CACHE, MEMORY = bundle_pb2.STATE_KIND_KV_CACHE, bundle_pb2.STATE_KIND_MEMORY
FLOAT, INT8 = bundle_pb2.DATA_TYPE_FLOAT32, bundle_pb2.DATA_TYPE_INT8
KINDS = {
    "cache": (CACHE, FLOAT, [2, LENGTH, 3], 1),
    "rounded cache": (CACHE, INT8, [2, LENGTH, 3], 1),
    "scales": (CACHE, FLOAT, [2, LENGTH], 1),
    "cache of no heads": (CACHE, FLOAT, [LENGTH, 4, 3], 0),
    "memory": (MEMORY, FLOAT, [LENGTH, 3], 0),
    "recurrent": (bundle_pb2.STATE_KIND_RECURRENT, FLOAT, [5], 0),
}


@pytest.mark.parametrize("flip", [0, 1])
@given(
    pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, LENGTH), st.integers(0, LENGTH)), max_size=5),
)
def test_a_fork_copies_tokens_of_caches_and_recurrent_states_as_they_are(flip, pairs):
    """Short stretches and long ones, one source for several targets; a memory, and all other slots, stay."""
    specs = [
        bundle_pb2.StateTensor(kind=kind, past=f"past {name}", data_type=data_type, shape=shape, length_axis=axis)
        for name, (kind, data_type, shape, axis) in KINDS.items()
    ]
    states = HostStates(specs, SLOTS)
    states.flip = flip
    rng = np.random.default_rng(0)
    for state in states.states:
        state.buffers[:] = rng.integers(-128, 128, state.buffers.shape)
    expected = [state.buffers.copy() for state in states.states]
    # Sources are slots 0 to 3, targets those from 4 on.
    copies = [(source, 4 + index, min(ends), max(ends)) for index, (source, *ends) in enumerate(pairs)]
    for state, buffers in zip(states.states, expected, strict=True):
        for source, target, start, stop in copies:
            if state.recurrent:
                buffers[flip, target] = buffers[flip, source]
            elif not state.memory:
                part = (slice(None),) * state.spec.length_axis + (slice(start, stop),)
                buffers[0, target][part] = buffers[0, source][part]

    states.fork(*np.array(copies, np.int64).reshape(-1, 4).T)

    for state, buffers in zip(states.states, expected, strict=True):
        np.testing.assert_array_equal(buffers, state.buffers, state.spec.past)


class Counted(np.ndarray):
    """An array that counts how often something is written into it."""

    writes = 0

    def __setitem__(self, where, value):
        type(self).writes += 1
        super().__setitem__(where, value)


@pytest.mark.parametrize("name", KINDS)
def test_the_short_copies_of_a_step_are_one_copy_of_each_tensor(name):
    """However many beams move, one index says which slot, head and token. A memory is not written."""
    kind, data_type, shape, axis = KINDS[name]
    spec = bundle_pb2.StateTensor(kind=kind, past="past", data_type=data_type, shape=shape, length_axis=axis)
    states = HostStates([spec], SLOTS)
    (state,) = states.states
    state.tokens, state.buffers = state.tokens.view(Counted), state.buffers.view(Counted)
    Counted.writes = 0

    states.fork(*np.array([[0, 4, 3, 5], [0, 5, 4, 5], [1, 6, 0, 5], [2, 7, 5, 5]], np.int64).T)

    assert Counted.writes == (0 if state.memory else 1)
