"""The Transformer encoder: used for source text, texts to classify, and patches of images."""

from typing import Any

import torch
from torch import Tensor, nn

from weft_export.layers.attention import SelfAttention
from weft_export.layers.relative_bias import RelativeBias
from weft_export.layers.style import DEFAULT_STYLE, Style, StyledLayer


class EncoderLayer(StyledLayer):
    """Self-attention and feed-forward, pre-norm (Xiong et al. 2020, "On Layer Normalization ...") or post-norm."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float, style: Style = DEFAULT_STYLE) -> None:
        super().__init__(style, dropout)
        self.attention_norm = style.norm(d_model)
        self.attention = SelfAttention(d_model, num_heads, **style.self_attention)
        self.feed_forward_norm = style.norm(d_model)
        self.feed_forward = style.feed_forward(d_model, d_ff)

    def forward(
        self, x: Tensor, lengths: Tensor | None, bias: Tensor | None = None, num_read: int | None = None
    ) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape, attending to the first lengths [batch] positions or to all.

        bias [1, h, seq, seq] is added to the scores. With num_read, only the first num_read positions are mapped.
        """
        out = self.attention.encode(self.before(self.attention_norm, x), lengths, bias, num_read)
        x = x if num_read is None else x[:, :num_read]
        return self.fed(self.feed_forward_norm, self.feed_forward, x, self.after(self.attention_norm, x, out))

    def weights(self, x: Tensor, mask: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the self-attention weights [batch, h, seq, seq] that forward uses where mask is True."""
        return self.attention.weights(self.before(self.attention_norm, x), mask, bias=bias)


class Encoder(nn.Module):
    """N encoder layers and, after pre-norm ones, a last norm."""

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float,
        style: Style = DEFAULT_STYLE,
        relative_bias: RelativeBias | None = None,
    ) -> None:
        super().__init__()
        sizes = (d_model, num_heads, d_ff, dropout)
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(EncoderLayer(*sizes, style) for _ in range(num_layers))
        self.norm = style.last_norm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.relative_bias = relative_bias

    def forward(self, x: Tensor, lengths: Tensor | None, num_read: int | None = None) -> Tensor:
        """Encode embedded x [batch, seq, d_model], of which each row has the first lengths [batch] or all.

        Who reads only the first num_read positions of the answer spares the last layer most of its work.
        """
        bias = self._bias(x)
        x = self.dropout(x)
        *layers, last = self.layers
        for layer in layers:
            x = layer(x, lengths, bias)
        x = last(x, lengths, bias, num_read)
        out: Tensor = self.norm(x)
        return out

    def attentions(self, x: Tensor) -> list[Tensor]:
        """Return each layer's self-attention weights [batch, h, seq, seq] over x [batch, seq, d_model], all real."""
        everything = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        weights = []
        bias = self._bias(x)
        for layer in self.layers:
            weights.append(layer.weights(x, everything, bias))
            x = layer(x, None, bias)
        return weights

    def _bias(self, x: Tensor) -> Tensor | None:
        if self.relative_bias is None:
            return None
        bias: Tensor = self.relative_bias(x.shape[1])
        return bias
