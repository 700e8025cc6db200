"""Greedy answers of a model that writes text about a source, for measuring it."""

import torch
from torch import Tensor

from weft_export.families.sequence_to_sequence import SequenceToSequence


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
