"""Attention whose scores also go by what a token asks of an offset, and an offset of a token: DeBERTa's.

"DeBERTa: Decoding-enhanced BERT with Disentangled Attention" (He et al. 2021), section 3.1, with the buckets of its
second version.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft_export.layers.attention import SelfAttention


@dataclass(frozen=True)
class Disentangled:
    """The choices of the attention.

    num_buckets: how many offsets, or buckets of them, have a vector on either side.
    max_distance: from where on all offsets share a bucket. As large as num_buckets: each offset has its own.
    content_to_position, position_to_content: the two terms of the paper's equation 4 beside content to content.
    """

    num_buckets: int
    max_distance: int
    content_to_position: bool = True
    position_to_content: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError when half of the buckets of a side would be none."""
        if self.num_buckets < 2:
            raise ValueError(f"disentangled.num_buckets must be at least 2, not {self.num_buckets}")


class DisentangledAttention(SelfAttention):
    """Q K^T + Q P_k^T + (K P_q^T)^T, over sqrt(d n) for n terms. The vectors of offsets are projected beforehand."""

    buckets: Tensor

    def __init__(self, d_model: int, num_heads: int, max_tokens: int, terms: Disentangled) -> None:
        num_terms = 1 + terms.content_to_position + terms.position_to_content
        head_dim = d_model // num_heads
        super().__init__(d_model, num_heads, scale=1 / math.sqrt(head_dim * num_terms))
        shape = (num_heads, 2 * terms.num_buckets, head_dim)
        self.position_keys = nn.Parameter(torch.zeros(shape)) if terms.content_to_position else None
        self.position_queries = nn.Parameter(torch.zeros(shape)) if terms.position_to_content else None
        place = torch.arange(max_tokens)
        buckets = signed_buckets(place[:, None] - place, terms.num_buckets, terms.max_distance)
        self.register_buffer("buckets", buckets, persistent=False)

    def bias_of(self, query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor | None:
        """See SelfAttention; what is given is added."""
        place = self.buckets[: query.shape[2], : query.shape[2]]
        if self.position_keys is not None:
            bias = _added(bias, self._term(query, self.position_keys, place))
        if self.position_queries is not None:
            # Each key asks what the offset to the query is worth to it.
            bias = _added(bias, self._term(key, self.position_queries, -place).transpose(2, 3))
        return bias

    def _term(self, asking: Tensor, offsets: Tensor, place: Tensor) -> Tensor:
        """Return asking [batch, h, seq, head_dim] times the vector of each offset, [batch, h, seq, seq]."""
        half = offsets.shape[1] // 2
        index = (place + half).clamp(0, 2 * half - 1).expand(*asking.shape[:2], -1, -1)
        assert self.scale is not None
        return (asking @ offsets.transpose(1, 2)).gather(3, index) * self.scale


def _added(bias: Tensor | None, term: Tensor) -> Tensor:
    return term if bias is None else bias + term


def signed_buckets(offsets: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Return the bucket of each offset (query's place - key's), with its sign, int64 of the same shape.

    Half of the buckets of a side have one offset each. The others grow by a constant factor up to max_distance.
    """
    if max_distance <= num_buckets:
        return offsets
    exact = num_buckets // 2
    distance = offsets.abs().clamp(min=exact).float()
    # In float32, as the weights were trained: the rounding decides at the edges.
    ratio = torch.log(distance / exact) / torch.log(torch.tensor((max_distance - 1) / exact))
    wide = torch.ceil(ratio * (exact - 1)) + exact
    return torch.where(offsets.abs() <= exact, offsets, (wide * offsets.sign()).long())
