"""Words as Transformers of many papers have them: vectors of tokens, and the logits of the next one."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.cached_attention import capped
from weft_export.layers.feed_forward import ACTIVATIONS
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


@dataclass(frozen=True)
class EmbeddingStyle:
    """The choices that papers differ in, beyond a vector for each token.

    scale: the tokens' vectors are multiplied by it.
    positions: each place has a vector too, which is added. The table is a weight, be it learned or of sinusoids.
    norm: a LayerNorm follows, with norm_eps; norm_bias says whether it has a bias.
    transform: before the output projection stands a linear layer with this activation, and a norm. None: neither.
    tied: the output projection is the tokens' table. Otherwise it is a matrix of its own.
    bias: the logits have one. A token with a bias of BANNED is never chosen.
    separator_id: what stands behind the first of these tokens is a second segment, and a vector is added to it. None:
        all is one segment, whose vector is part of the places'.
    logit_scale: logits are multiplied by it.
    softcap: logits s become softcap tanh(s / softcap). None: they stay.
    """

    scale: float = 1.0
    positions: bool = False
    norm: bool = False
    norm_eps: float = 1e-5
    norm_bias: bool = True
    transform: str | None = None
    tied: bool = True
    bias: bool = False
    softcap: float | None = None
    logit_scale: float = 1.0
    separator_id: int | None = None


BANNED = -1e4
"""Its exponential beside any other logit is 0, and float16 can hold it."""


class Transform(nn.Module):
    """N(f(x W + b)): what BERT's words pass before they become logits (Devlin et al. 2019, the authors' code)."""

    def __init__(self, d_model: int, activation: str, eps: float) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)
        self.activation = ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(d_model, eps)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., d_model] to the same shape."""
        out: Tensor = self.norm(self.activation(self.linear(x)))
        return out


class Embeddings(TokenEmbedding):
    """scale E[token] + P[place], normed or not, and the output projection."""

    def __init__(self, vocab_size: int, max_tokens: int, d_model: int, style: EmbeddingStyle) -> None:
        super().__init__(vocab_size, d_model)
        self.style = style
        self.positions = nn.Embedding(max_tokens, d_model) if style.positions else None
        self.norm = nn.LayerNorm(d_model, style.norm_eps, bias=style.norm_bias) if style.norm else None
        self.transform = None if style.transform is None else Transform(d_model, style.transform, style.norm_eps)
        self.second_segment = None if style.separator_id is None else nn.Parameter(torch.zeros(d_model))
        self.projection = None if style.tied else nn.Linear(d_model, vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if style.bias else None

    def forward(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:
        """Embed ids [batch, seq]; row b begins at position past_lengths[b], or at 0. Returns [batch, seq, d_model].

        Padding may stand beyond the last position, whose vector it then gets.
        """
        embedded: Tensor = self.tokens(ids)
        if self.style.scale != 1.0:
            embedded = embedded * self.style.scale
        if self.positions is not None:
            embedded = embedded + self.places(ids.shape[1], past_lengths)
        if self.second_segment is not None:
            separators = ids.eq(self.style.separator_id or 0).long()
            behind = separators.cumsum(dim=1) > separators
            embedded = embedded + behind[..., None].to(embedded.dtype) * self.second_segment
        return embedded if self.norm is None else self.norm(embedded)

    def places(self, seq: int, past_lengths: Tensor | None = None) -> Tensor:
        """Return the vectors of places, [seq, d_model], or of the places of each row, [batch, seq, d_model]."""
        assert self.positions is not None, "these words have no places. This is a bug."
        places = torch.arange(seq)
        if past_lengths is not None:
            places = past_lengths.long()[:, None] + places
        vectors: Tensor = self.positions(places.clamp(max=self.positions.num_embeddings - 1))
        return vectors

    def logits(self, x: Tensor) -> Tensor:
        """Project x [..., d_model] to logits [..., vocab]."""
        if self.transform is not None:
            x = self.transform(x)
        logits = super().logits(x) if self.projection is None else self.projection(x)
        if self.style.logit_scale != 1.0:
            logits = logits * self.style.logit_scale
        if self.bias is not None:
            logits = logits + self.bias
        return logits if self.style.softcap is None else capped(logits, self.style.softcap)


class LearnedEmbedding(TokenEmbedding):
    """E[token] + P[position] ("Convolutional Sequence to Sequence Learning", Gehring et al. 2017, section 3.1)."""

    def __init__(self, vocab_size: int, max_tokens: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.positions = nn.Embedding(max_tokens, d_model)

    def forward(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:
        """Embed ids [batch, seq]; row b begins at position past_lengths[b], or at 0. Returns [batch, seq, d_model].

        Padding may stand beyond the last position, whose vector it then gets.
        """
        places = torch.arange(ids.shape[1])
        if past_lengths is not None:
            places = past_lengths.long()[:, None] + places
        embedded: Tensor = self.tokens(ids) + self.positions(places.clamp(max=self.positions.num_embeddings - 1))
        return embedded
