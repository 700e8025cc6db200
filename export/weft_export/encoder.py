"""The Transformer encoder, pre-norm: used for source text, texts to classify, and patches of images."""

from typing import Any

import torch
from torch import Tensor, nn

from weft_export.attention import SelfAttention
from weft_export.feed_forward import FeedForward


class EncoderLayer(nn.Module):
    """x + SelfAttention(LN(x)), then x + FFN(LN(x)): pre-norm (Xiong et al. 2020, "On Layer Normalization ...")."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = SelfAttention(d_model, num_heads)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape, attending to the first lengths [batch] positions or to all."""
        x = x + self.dropout(self.attention.encode(self.attention_norm(x), lengths))
        out: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return out

    def weights(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the self-attention weights [batch, h, seq, seq] that forward uses where mask is True."""
        return self.attention.weights(self.attention_norm(x), mask)


class Encoder(nn.Module):
    """N encoder layers and the final LayerNorm that pre-norm needs."""

    def __init__(self, num_layers: int, d_model: int, num_heads: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers))
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Encode embedded x [batch, seq, d_model], of which each row has the first lengths [batch] or all."""
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x, lengths)
        out: Tensor = self.norm(x)
        return out

    def attentions(self, x: Tensor) -> list[Tensor]:
        """Return each layer's weights [batch, h, seq, seq] over x [batch, seq, d_model], which has no padding."""
        everything, weights = torch.ones(1, 1, 1, 1, dtype=torch.bool), []
        for layer in self.layers:
            weights.append(layer.weights(x, everything))
            x = layer(x, None)
        return weights
