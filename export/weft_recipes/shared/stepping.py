"""Greedy answers of a model by its steps over states, as a server takes them."""

import torch
from torch import Tensor

from weft_export.families.writer import Writer
from weft_export.layers.run import Run


@torch.no_grad()
def answer_by_steps(
    model: Writer, *source: Tensor, memory_lengths: Tensor, start: int, end: int, max_new_tokens: int
) -> list[list[int]]:
    """Return for each row of a source the likeliest tokens one by one, up to the end token, which is left out.

    Every state must be one that the encoder writes. memory_lengths is int32 [rows].
    """
    states = list(model.encode_states(*source))
    rows = states[0].shape[0]
    ids = torch.full((rows, 1), start)
    done = torch.zeros(rows, dtype=torch.bool)
    one = torch.ones(rows, dtype=torch.int32)
    for position in range(max_new_tokens):
        run = Run(ids[:, -1:], one * position, one, one[:1] * max_new_tokens, memory_lengths)
        logits, presents = model.step(run, states)
        following = iter(presents)
        states = [next(following) if state.returned else past for state, past in zip(model.states, states, strict=True)]
        ids = torch.cat((ids, logits.argmax(dim=-1, keepdim=True)), dim=1)
        done |= ids[:, -1] == end
        if bool(done.all()):
            break
    answers = ids[:, 1:].tolist()
    return [answer[: answer.index(end)] if end in answer else answer for answer in answers]
