"""Whether a run of several tokens has the bits of as many runs of one, with this graph and on this processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from weft_server.engine.decode_runner import DecodeRunner
    from weft_server.engine.slots import Slots
    from weft_server.runtime.states import HostStates, State
    from weft_server.sampling.candidates import Candidates

# How many tokens come before: a kernel may go another way where there are many.
_PASTS = (5, 700)


def drafts_are_exact(runner: DecodeRunner, slots: Slots, vocab_size: int) -> bool:
    """Whether runs that verify as many drafts as the runner may have the bits of single steps: all outputs, and caches.

    All numbers of drafts are tried behind few tokens; one draft, and the most, behind many. What the caches hold is
    random. The slots and the states are not as new afterwards.
    """
    states = runner.host_states
    assert states is not None, "drafts are verified on the host alone. This is a bug."
    max_drafts, max_total = runner.max_drafts, runner.kv_capacity // slots.num_slots
    rng = np.random.default_rng(0)
    ids = rng.integers(0, vocab_size, 1 + max_drafts)
    slots.reads_all[0] = True
    pasts = sorted({max(0, min(past, max_total - 1 - max_drafts)) for past in _PASTS})
    for past in pasts:
        sizes = range(1, 1 + max_drafts) if past == pasts[0] else sorted({1, max_drafts})
        _fill(states, rng, 0, past)
        single = _single_steps(runner, slots, ids, past)
        entries = [array.copy() for array in _entries(states, past, len(ids))]
        for size in sizes:
            # Nothing that lies behind the past may be read.
            _fill(states, rng, past, max_total)
            slots.input_ids[0], slots.past_lengths[0] = ids[0], past
            together = _all_of(runner.verify(ids[1 : 1 + size]))
            if not all(np.array_equal(one[: 1 + size], each) for one, each in zip(single, together, strict=True)):
                return False
            written = _entries(states, past, 1 + size)
            if not all(np.array_equal(one[: 1 + size], each) for one, each in zip(entries, written, strict=True)):
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


def _entries(states: HostStates, start: int, count: int) -> list[np.ndarray]:
    """Return what the first slot holds of `count` tokens from `start` on, of each cache: [count, ...]."""
    return [_by_token(state)[start : start + count] for state in states.states]


def _fill(states: HostStates, rng: np.random.Generator, start: int, stop: int) -> None:
    for state in states.states:
        part = _by_token(state)[start:stop]
        drawn = rng.standard_normal(part.shape, np.float32)
        part[...] = (drawn * 40).clip(-127, 127) if part.dtype == np.int8 else drawn


def _by_token(state: State) -> np.ndarray:
    """A cache's first slot, with its tokens first."""
    return np.moveaxis(state.past(0)[0], state.spec.length_axis, 0)
