"""Rows of many kinds in one run of a decoder whose caches lie in blocks, beside torch, which keeps each row apart."""

import torch

from weft_export.verification.decode_parity import PREFILL_SEQ, DecodeParity
from weft_export.verification.runtime import run_in_place
from weft_proto.bundle_rules import CANDIDATE_PORTS

_NEW_TOKENS = (1, PREFILL_SEQ, 3, 1)


def check_packs(run: DecodeParity, vocab_size: int) -> None:
    """Feed all requests at once: decoding rows a token, others pieces of a prompt. Then the other way round.

    Raises:
        ParityError: a candidate or a logit of a row differs by more than the tolerance allows.
    """
    generator = torch.Generator().manual_seed(0)
    past = torch.tensor([request.past // 2 for request in run.requests], dtype=torch.int32)
    for first in range(2):
        wanted = [_NEW_TOKENS[(first + row) % len(_NEW_TOKENS)] for row in range(len(past))]
        seq = min(max(wanted), run.capacity - int(past.max()))
        inputs = {
            "input_ids": torch.randint(vocab_size, (len(past), seq), generator=generator),
            "past_lengths": past,
            "lengths": torch.tensor(wanted, dtype=torch.int32).clamp(max=seq),
            "total_length": torch.tensor([run.capacity], dtype=torch.int32),
        }
        expected = run.reference(*inputs.values(), *run.tensors)
        feeds = {name: tensor.numpy() for name, tensor in inputs.items()}
        feeds |= {state.past: array.copy() for state, array in zip(run.states, run.arrays, strict=True)}
        actual = run_in_place(run.session, feeds, run.states)
        run.compare_candidates(dict(zip(CANDIDATE_PORTS, expected, strict=False)), actual)
