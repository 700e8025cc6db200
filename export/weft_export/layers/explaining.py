"""What EXPLAIN graphs are made of: one layer and head out of many, attention rollout, and rows that sum to 1."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

Explanation = tuple[Tensor, ...]
"""weights float32 [rows, source], each row summing to 1, and source_mass float32 [rows].

Of a model whose decoder reads a question, target_weights float32 [rows, target] come third: what each row attended to
among target_ids, where rows sum to 1 at most. Of one whose encoder reads it, they are question_weights [rows, seq].
"""


_watching: list[list[Tensor]] = []


@contextmanager
def watching() -> Iterator[list[Tensor]]:
    """Collect what is noted inside, in its order."""
    seen: list[Tensor] = []
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.pop()


def noted(value: Tensor) -> Tensor:
    """Return a value from inside a model, and let who is watching have it.

    There are two kinds, which no view has together: each layer's attention weights, of all heads, in a model that
    explains; and what last_position takes and gives, in a decoder.
    """
    for seen in _watching:
        seen.append(value)
    return value


def pick_head(weights: Tensor, head: Tensor) -> Tensor:
    """Return from weights [heads, rows, columns] the head in head, int64 [1], or their average where it is -1."""
    num_heads = weights.shape[0]
    share = torch.where(head < 0, 1.0 / num_heads, (torch.arange(num_heads) == head).float())
    return torch.einsum("h,hrc->rc", share, weights.float())


def pick(attentions: Sequence[Tensor], layer: Tensor, head: Tensor) -> Tensor:
    """Return [rows, columns] out of each layer's attention [1, heads, rows, columns]: one layer and head."""
    return pick_layer([pick_head(weights[0], head) for weights in attentions], layer)


def pick_layer(layers: Sequence[Tensor], layer: Tensor, summary: Tensor | None = None) -> Tensor:
    """Return layers[layer], [rows, columns]. layer is int64 [1], and -1 means summary."""
    picked = layers[0] if summary is None else summary
    for index, weights in enumerate(layers):
        picked = torch.where(layer == index, weights, picked)
    return picked


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """Return attention rollout [n, n]: the product over layers of (A + I) / 2. A [n, n] is the average over heads.

    "Quantifying Attention Flow in Transformers" (Abnar and Zuidema 2020), section 3. Half of what a position is comes
    through its residual connection.
    """
    index = torch.arange(layers[0].shape[-1])
    identity = (index[:, None] == index).float()
    flow = identity
    for weights in layers:
        flow = (weights.float() + identity) / 2 @ flow
    return flow


def pick_flow(attentions: Sequence[Tensor], layer: Tensor, head: Tensor) -> Tensor:
    """Return [n, n] out of each layer's self-attention [1, heads, n, n]: one layer and head, or their rollout.

    The rollout (layer -1) takes the average over heads, whatever head says. A server names no head then.
    """
    everything = rollout([weights[0].float().mean(dim=0) for weights in attentions])
    return pick_layer([pick_head(weights[0], head) for weights in attentions], layer, everything)


def over_source(weights: Tensor) -> Explanation:
    """Make each row of weights [rows, source] sum to 1, and tell what it summed to before."""
    source_mass = weights.sum(dim=-1)
    some = source_mass[:, None] > 0
    uniform = torch.full_like(weights, 1.0) / weights.shape[-1]
    return torch.where(some, weights / torch.where(some, source_mass[:, None], 1.0), uniform), source_mass
