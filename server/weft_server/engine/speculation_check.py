"""Whether a run of several tokens has the bits of as many runs of one, with this graph and on this processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from weft_server.engine.decode_runner import DecodeRunner
    from weft_server.engine.slots import Slots
    from weft_server.runtime.states import State
    from weft_server.sampling.candidates import Candidates

# How many tokens come before: a kernel may go another way where there are many.
_PASTS = (5, 700)
# And how many places a memory has, if there is one. No run has more tokens than that.
_PLACES = (0, 500)


def drafts_are_exact(runner: DecodeRunner, slots: Slots, vocab_size: int) -> bool:
    """Whether runs that verify as many drafts as the runner may have the bits of single steps: all outputs, and caches.

    All numbers of drafts are tried behind few tokens; one draft, and the most, behind many. What the states hold is
    random. The slots and the states are not as new afterwards.
    """
    states = runner.host_states
    assert states is not None, "drafts are verified on the host alone. This is a bug."
    caches = [state for state in states.states if not state.memory]
    memories = [state for state in states.states if state.memory]
    max_drafts, max_total = runner.max_drafts, runner.kv_capacity // slots.num_slots
    rng = np.random.default_rng(0)
    ids = rng.integers(0, vocab_size, 1 + max_drafts)
    slots.reads_all[0] = True
    _fill(memories, rng, 0, None)
    for most, places in zip(_PASTS, _PLACES, strict=True):
        past = max(0, min(most, max_total - 1 - max_drafts))
        slots.memory_lengths[0] = max(1 + max_drafts, min((places, *(len(_by_token(state)) for state in memories))))
        sizes = range(1, 1 + max_drafts) if places == _PLACES[0] else sorted({1, max_drafts})
        _fill(caches, rng, 0, past)
        single = _single_steps(runner, slots, ids, past)
        entries = [array.copy() for array in _entries(caches, past, len(ids))]
        for size in sizes:
            # Nothing that lies behind the past may be read.
            _fill(caches, rng, past, max_total)
            slots.input_ids[0], slots.past_lengths[0] = ids[0], past
            together = _all_of(runner.verify(ids[1 : 1 + size]))
            if not all(np.array_equal(one[: 1 + size], each) for one, each in zip(single, together, strict=True)):
                return False
            written = _entries(caches, past, 1 + size)
            if not all(np.array_equal(one[: 1 + size], each) for one, each in zip(entries, written, strict=True)):
                return False
    return True


def drafts_are_exact_beside(runner: DecodeRunner, slots: Slots, vocab_size: int) -> bool:
    """Whether a mixed run that verifies drafts has the bits of a decode run and of a run for the drafts alone.

    All outputs and caches are compared, for one draft and for the most. The runner has two slots. They and the states
    are not as new afterwards.
    """
    states = runner.host_states
    assert states is not None, "drafts are verified on the host alone. This is a bug."
    max_total = runner.kv_capacity // slots.num_slots
    rng = np.random.default_rng(0)
    ids = rng.integers(0, vocab_size, 2 + runner.max_drafts)
    slots.reads_all[:] = True
    past = max(0, min(_PASTS[0], max_total - 1 - runner.max_drafts))
    stop = past + 1 + runner.max_drafts
    for size in sorted({1, runner.max_drafts}):
        _fill(states.states, rng, 0, stop, slot=1)
        for state in states.states:
            state.move(1, 0, 0, stop)
        slots.input_ids[:, 0], slots.past_lengths[:] = ids[1], past
        apart = _all_of(runner.verify(ids[2 : 2 + size]))
        entries = [array.copy() for array in _entries(states.states, past, 1 + size)]
        slots.input_ids[0] = ids[0]
        alone = _all_of(runner.decode(1))
        row = [array.copy() for array in _entries(states.states, past, 1)]
        slots.past_lengths[0] = past
        both = _all_of(runner.verify(ids[2 : 2 + size], 1))
        expected = [np.concatenate(arrays) for arrays in zip(alone, apart, strict=True)]
        expected += [*entries, *row]
        both += _entries(states.states, past, 1 + size, slot=1)
        both += _entries(states.states, past, 1)
        if not all(map(np.array_equal, expected, both)):
            return False
    return True


def _single_steps(runner: DecodeRunner, slots: Slots, ids: np.ndarray, past: int) -> list[np.ndarray]:
    """Return what runs of one token each say, in which nothing was drafted."""
    found = []
    slots.past_lengths[0] = past
    for token_id in ids.tolist():
        slots.input_ids[0] = token_id
        found.append(_all_of(runner.decode(1)))
    return [np.concatenate(arrays) for arrays in zip(*found, strict=True)]


def _all_of(candidates: Candidates) -> list[np.ndarray]:
    """Everything that a run says, copied: the next run overwrites it."""
    logits = [candidates.logits[row] for row in range(len(candidates.topk_ids))]
    return [candidates.topk_ids.copy(), candidates.topk_logits.copy(), candidates.logsumexp.copy(), np.stack(logits)]


def _entries(caches: list[State], start: int, count: int, slot: int = 0) -> list[np.ndarray]:
    """Return what a slot holds of `count` tokens from `start` on, of each cache: [count, ...]."""
    return [_by_token(state, slot)[start : start + count] for state in caches]


def _fill(states: list[State], rng: np.random.Generator, start: int, stop: int | None, slot: int = 0) -> None:
    for state in states:
        part = _by_token(state, slot)[start:stop]
        drawn = rng.standard_normal(part.shape, np.float32)
        part[...] = (drawn * 40).clip(-127, 127) if part.dtype == np.int8 else drawn


def _by_token(state: State, slot: int = 0) -> np.ndarray:
    """What a slot of a cache or a memory holds, with its tokens or places first."""
    return np.moveaxis(state.past(0)[slot], state.spec.length_axis, 0)
