"""A request where its context ends: the last rows of tables, and the widest masks.

Other requests are short, so that their cost does not follow the length of the context. This one takes no prompt: its
cache is filled with what a short one left, again and again. Random entries would not do. A trained model that reads
such enlarges the rounding of float32 several times more than it does with its own.
"""

import numpy as np
import torch
from torch import Tensor

from weft_export.errors import ParityError
from weft_export.graphs.graphs import zeros_of
from weft_export.proofs.decode_parity import PREFILL_SEQ, Array, DecodeParity, Encoded, head
from weft_export.proofs.runtime import run_in_place
from weft_proto.bundle_rules import CANDIDATE_PORTS
from weft_proto.v1 import bundle_pb2


def check_end(run: DecodeParity, encoded: Encoded, vocab_size: int) -> None:
    """Compare a prompt's last piece, and then the last step that there is room for.

    Raises:
        ParityError: a candidate or a new entry differs by more than the gauge allows, or another entry has changed.
    """
    if any(state.kind == bundle_pb2.STATE_KIND_RECURRENT for state in run.states):
        return  # it knows no positions
    rng = np.random.default_rng(0)
    source = run.requests[0]
    arrays = _filled(run, encoded)
    # Who reads a memory is fed one token a run.
    num_tokens = min(1 if "memory_lengths" in run.inputs else PREFILL_SEQ, run.capacity - 1)
    past = run.capacity - num_tokens - 1
    for seq in (num_tokens, 1):
        inputs = {
            "input_ids": torch.from_numpy(rng.integers(vocab_size, size=(1, seq))),
            "past_lengths": torch.tensor([past], dtype=torch.int32),
            "lengths": torch.tensor([seq], dtype=torch.int32),
            "total_length": torch.tensor([run.capacity], dtype=torch.int32),
        }
        if "memory_lengths" in run.inputs:
            inputs["memory_lengths"] = torch.tensor([source.memory_length], dtype=torch.int32)
        _check_piece(run, inputs, arrays, past)
        past += seq


def _check_piece(run: DecodeParity, inputs: dict[str, Tensor], arrays: list[Array], past: int) -> None:
    # In float32 they are the arrays themselves. Torch leaves them as they are, and comes first.
    tensors = [torch.from_numpy(array).float() for array in arrays]
    expected = run.reference(*inputs.values(), *tensors)
    feeds = {name: tensor.numpy() for name, tensor in inputs.items()} | run.asking
    feeds |= {state.past: array for state, array in zip(run.states, arrays, strict=True)}
    actual = run_in_place(run.session, feeds, run.states)

    run.compare_candidates(dict(zip(CANDIDATE_PORTS, expected, strict=False)), actual)
    presents = iter(expected[len(CANDIDATE_PORTS) :])
    for state, array in zip(run.states, arrays, strict=True):
        if not state.present:
            continue
        present = next(presents)
        if state.kind != bundle_pb2.STATE_KIND_KV_CACHE:
            continue
        run.gauge.compare(f"state {state.present} at its end", present[:, :, past:], array[:, :, past:])
        if not np.array_equal(present[:, :, :past].numpy(), array[:, :, :past]):
            raise ParityError(f"decoder.onnx changes entries of state {state.present} that came before its tokens")


def _filled(run: DecodeParity, encoded: Encoded) -> list[Array]:
    """Return the states of one slot: full caches, and the memory of the first request."""
    request = run.requests[0]
    written = iter(encoded[0][1] if encoded else ())
    arrays = []
    for state, left in zip(run.states, run.arrays, strict=True):
        array = zeros_of(state, 1).numpy()
        if state.encoder_output:
            head(array[0], state, request.memory_length)[...] = next(written)
        else:
            for first in range(0, run.capacity, request.past):
                part = array[:, :, first : first + request.past]
                part[...] = left[:1, :, : part.shape[2]]
        arrays.append(array)
    return arrays
