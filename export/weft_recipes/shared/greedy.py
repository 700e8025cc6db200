"""Greedy answers of a model that writes text about a source, of the whole model or by its steps, for measuring it."""

import torch
from torch import Tensor

from weft_export.families.sequence_to_sequence import SequenceToSequence
from weft_export.families.writer import Writer
from weft_export.layers.run import Run


@torch.no_grad()
def greedy(
    model: SequenceToSequence, *source: Tensor, start: int | list[int], end: int, max_new_tokens: int
) -> list[list[int]]:
    """Return for each row of a source the likeliest tokens one by one, up to the end token, which is left out.

    `source` is what the model's encoder takes. `start` is what each row is fed before: a token, or some.
    """
    encoded, mask = model.encode(*source)
    memories = model.decoder.project(encoded)
    rows = encoded.shape[0]
    ids = torch.tensor([start] if isinstance(start, int) else start).expand(rows, -1)
    num_given = ids.shape[1]
    done = torch.zeros(rows, dtype=torch.bool)
    for _ in range(max_new_tokens):
        following = model.decoder(ids, memories, mask)[:, -1].argmax(dim=-1)
        ids = torch.cat((ids, following[:, None]), dim=1)
        done |= following == end
        if bool(done.all()):
            break
    answers = ids[:, num_given:].tolist()
    return [answer[: answer.index(end)] if end in answer else answer for answer in answers]


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
