"""The encoder that classifying and tagging share: BERT's (Devlin et al. 2019), and so RoBERTa's (Liu et al. 2019)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.attention import SelfAttention
from weft_export.families.sizes import require_divisible, require_fraction, require_positive
from weft_export.feed_forward import FeedForward
from weft_export.learned_embedding import LearnedEmbedding


@dataclass(frozen=True)
class BertConfig:
    """Sizes; the paper's symbols stand beside them. Lengths are in tokens, [CLS] and [SEP] included."""

    vocab_size: int
    num_labels: int
    max_tokens: int
    d_model: int  # H
    num_heads: int  # A
    d_ff: int  # 4H in the paper
    num_layers: int  # L
    norm_eps: float = 1e-12
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        floats = ("norm_eps", "dropout")
        require_positive(**{name: size for name, size in vars(self).items() if name not in floats})
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)
        require_fraction("dropout", self.dropout)
        if self.norm_eps <= 0:
            raise ValueError("norm_eps must be above 0")


class BertLayer(nn.Module):
    """LN(x + SelfAttention(x)), then LN(x + FFN(x)): post-norm, as the Transformer was first written."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.d_model, config.num_heads)
        self.attention_norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape, attending to the first lengths [batch] positions or to all."""
        x = self.attention_norm(x + self.dropout(self.attention.encode(x, lengths)))
        out: Tensor = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return out


class BertEncoder(nn.Module):
    """LN(E[token] + P[position]) and N post-norm layers, for a single segment.

    The vector of that segment is part of each position's, and RoBERTa's first two positions, which no token ever takes,
    are left out.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embedding = LearnedEmbedding(config.vocab_size, config.max_tokens, config.d_model)
        self.norm = nn.LayerNorm(config.d_model, config.norm_eps)
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(BertLayer(config) for _ in range(config.num_layers))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids: Tensor, lengths: Tensor | None) -> Tensor:
        """Encode input_ids int64 [batch, seq], right-padded to lengths [batch] or full: [batch, seq, d_model]."""
        x = self.dropout(self.norm(self.embedding(input_ids)))
        for layer in self.layers:
            x = layer(x, lengths)
        encoded: Tensor = x
        return encoded

    def attentions(self, input_ids: Tensor) -> list[Tensor]:
        """Return each layer's self-attention [batch, h, seq, seq] over input_ids [batch, seq] without padding."""
        everything, weights = torch.ones(1, 1, 1, 1, dtype=torch.bool), []
        x = self.norm(self.embedding(input_ids))
        for layer in self.layers:
            weights.append(layer.attention.weights(x, everything))
            x = layer(x, None)
        return weights
