"""A request where its context ends: the last rows of tables, and the widest masks.

Other requests are short, so that their cost does not follow the length of the context. This one takes no prompt: its
cache is filled with what a short one left, again and again. Random entries would not do. A trained model that reads
such enlarges the rounding of float32 several times more than it does with its own.

ONNX Runtime answers first, and lets go of its weights. Torch returns all caches anew: then there is memory for them.
"""

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from weft_export.errors import ParityError
from weft_export.graphs.graphs import zeros_of
from weft_export.verification.decode_parity import Array, DecodeParity, Encoded, head
from weft_export.verification.runtime import run_in_place
from weft_proto.bundle_rules import CANDIDATE_PORTS, FEATURES, POSITION_OFFSETS
from weft_proto.sight import NUM_AXES
from weft_proto.v1 import bundle_pb2


def check_end(run: DecodeParity, encoded: Encoded, vocab_size: int) -> None:
    """Compare a prompt's last piece, and then the last step that there is room for; the run is closed then.

    Raises:
        ParityError: a candidate or a new entry differs by more than the tolerance allows, or another entry has changed.
    """
    # Who reads one token a run has tables of no places, and no masks.
    arrays = [] if run.steps else _filled(run, encoded)
    pieces = [] if run.steps else list(_pieces(run, vocab_size))
    answers = [(_given(run, arrays), _answered(run, inputs, arrays)) for inputs in pieces]
    run.close()
    for inputs, (given, actual) in zip(pieces, answers, strict=True):
        _compare(run, inputs, given, actual)


def _pieces(run: DecodeParity, vocab_size: int) -> Iterator[dict[str, Tensor]]:
    """Yield what both are fed beside the states."""
    rng = np.random.default_rng(0)
    # Who reads a memory is fed one token a run, unless it reads questions.
    is_stepped = "memory_lengths" in run.inputs and not run.reads_prefix
    num_tokens = min(1 if is_stepped else run.longest_piece(run.requests[0]), run.capacity - 1)
    past = run.capacity - num_tokens - 1
    for seq in (num_tokens, 1):
        inputs = {
            "input_ids": torch.from_numpy(rng.integers(vocab_size, size=(1, seq))),
            "past_lengths": torch.tensor([past], dtype=torch.int32),
            "lengths": torch.tensor([seq], dtype=torch.int32),
            "total_length": torch.tensor([run.capacity], dtype=torch.int32),
        }
        if "memory_lengths" in run.inputs:
            inputs["memory_lengths"] = torch.tensor([run.requests[0].memory_length], dtype=torch.int32)
        if FEATURES in run.inputs:
            inputs[FEATURES] = run.no_features(seq)
        if POSITION_OFFSETS in run.inputs:
            inputs[POSITION_OFFSETS] = torch.zeros(1, seq, NUM_AXES, dtype=torch.int64)
        yield inputs
        past += seq


def _given(run: DecodeParity, arrays: list[Array]) -> list[Array]:
    """Return what a run is given: caches, into which it writes, and recurrent states as they are now."""
    replaced = [state.kind == bundle_pb2.STATE_KIND_RECURRENT for state in run.states]
    return [array.copy() if each else array for array, each in zip(arrays, replaced, strict=True)]


def _answered(run: DecodeParity, inputs: dict[str, Tensor], arrays: list[Array]) -> dict[str, Array]:
    """Return ONNX Runtime's candidates and recurrent states.

    Its new entries are in the arrays then, and the ones before as they were.
    """
    past = int(inputs["past_lengths"])
    feeds = {name: tensor.numpy() for name, tensor in inputs.items()} | run.asking
    feeds |= {state.past: array for state, array in zip(run.states, arrays, strict=True)}
    before = _digests(run, arrays, past)
    outputs = run_in_place(run.session, feeds, run.states)
    for name, digest in _digests(run, arrays, past).items():
        if digest != before[name]:
            raise ParityError(f"decoder.onnx changes entries of state {name} that came before its tokens")
    replaced = {}
    for state, array in zip(run.states, arrays, strict=True):
        if state.kind == bundle_pb2.STATE_KIND_RECURRENT:
            array[...] = replaced[state.present] = outputs[state.present]
    return {name: outputs[name] for name in CANDIDATE_PORTS} | replaced


def _digests(run: DecodeParity, arrays: list[Array], past: int) -> dict[str, bytes]:
    return {
        state.present: hashlib.sha256(np.ascontiguousarray(array[:, :, :past]).data).digest()
        for state, array in zip(run.states, arrays, strict=True)
        if state.present and state.kind == bundle_pb2.STATE_KIND_KV_CACHE
    }


def _compare(run: DecodeParity, inputs: dict[str, Tensor], arrays: list[Array], actual: dict[str, Array]) -> None:
    past, stop = (int(inputs["past_lengths"] + more) for more in (0, inputs["lengths"]))
    # In float32 they are the arrays themselves, which torch leaves as they are.
    tensors = [torch.from_numpy(array).float() for array in arrays]
    expected = run.reference(*inputs.values(), *tensors)
    run.compare_candidates(dict(zip(CANDIDATE_PORTS, expected, strict=False)), actual)
    presents = iter(expected[len(CANDIDATE_PORTS) :])
    for state, array in zip(run.states, arrays, strict=True):
        if not state.present:
            continue
        present = next(presents)
        if state.kind == bundle_pb2.STATE_KIND_KV_CACHE:
            run.tolerance.compare(f"state {state.present} at its end", present[:, :, past:stop], array[:, :, past:stop])
        elif state.kind == bundle_pb2.STATE_KIND_RECURRENT:
            run.tolerance.compare(f"state {state.present} at its end", present, actual[state.present])


def _filled(run: DecodeParity, encoded: Encoded) -> list[Array]:
    """Return the states of one slot: full caches, and the memory of the first request."""
    request = run.requests[0]
    written = iter(encoded[0][1] if encoded else ())
    arrays = []
    for state, left in zip(run.states, run.arrays, strict=True):
        array = zeros_of(state, 1).numpy()
        fresh = next(written) if state.encoder_output else None
        if fresh is not None and state.kind != bundle_pb2.STATE_KIND_KV_CACHE:
            head(array[0], state, request.memory_length)[...] = fresh
        elif state.kind == bundle_pb2.STATE_KIND_RECURRENT:
            array[...] = left[:1]
        else:
            num_left = run.begun(request) + request.past
            for first in range(0, run.capacity, num_left):
                part = array[:, :, first : first + num_left]
                part[...] = left[:1, :, : part.shape[2]]
        arrays.append(array)
    return arrays
