"""Token embeddings, alone or with sinusoidal positions, and the output projection tied to them."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.positions import sinusoidal_table


class TiedEmbedding(nn.Embedding):
    """E, whose transpose can be the output projection ("Using the Output Embedding ...", Press and Wolf 2017)."""

    def logits(self, x: Tensor) -> Tensor:
        """Project x [..., d_model] to logits [..., vocab]."""
        return functional.linear(x, self.weight)


class TokenEmbedding(nn.Module):
    """E[token], and E^T as the output projection."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.tokens = TiedEmbedding(vocab_size, d_model)
        nn.init.normal_(self.tokens.weight, std=d_model**-0.5)

    def forward(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:  # noqa: ARG002 - of no account here
        """Embed ids [batch, seq]; row b begins at position past_lengths[b], or at 0. Returns [batch, seq, d_model]."""
        embedded: Tensor = self.tokens(ids)
        return embedded

    def logits(self, x: Tensor) -> Tensor:
        """Project x [..., d_model] to logits [..., vocab] with the embedding itself."""
        logits: Tensor = self.tokens.logits(x)
        return logits


class PositionedEmbedding(TokenEmbedding):
    """sqrt(d_model) * E[token] + PE[position] ("Attention Is All You Need", sections 3.4 and 3.5)."""

    positions: Tensor

    def __init__(self, vocab_size: int, max_tokens: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        # A batch is padded to a multiple of 8, which may lie beyond max_tokens.
        self.register_buffer("positions", sinusoidal_table(-(-max_tokens // 8) * 8, d_model), persistent=False)
        self.scale = math.sqrt(d_model)

    def forward(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:
        """Embed ids [batch, seq]; row b begins at position past_lengths[b], or at 0. Returns [batch, seq, d_model]."""
        seq = ids.shape[1]
        if past_lengths is None:
            places = self.positions[:seq]
        else:
            places = functional.embedding(past_lengths.long()[:, None] + torch.arange(seq), self.positions)
        embedded: Tensor = self.tokens(ids) * self.scale + places
        return embedded
