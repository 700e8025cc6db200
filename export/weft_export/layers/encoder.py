"""The Transformer encoder: used for source text, texts to classify, and patches of images."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weft_export.layers.attention import SelfAttention
from weft_export.layers.cached_attention import KeyValue
from weft_export.layers.score_bias import RelativeBias
from weft_export.layers.style import DEFAULT_STYLE, Style, StyledLayer
from weft_export.layers.unpadding import Unpadding, unpadding_of

if TYPE_CHECKING:
    from weft_export.layers.reach import Reach

# Beside any other score its exponential is 0.
_UNSEEN = -1e4


class EncoderLayer(StyledLayer):
    """Self-attention and feed-forward, pre-norm (Xiong et al. 2020, "On Layer Normalization ...") or post-norm."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float,
        style: Style = DEFAULT_STYLE,
        *,
        first_norm: bool = True,
    ) -> None:
        """Make a layer; first_norm says whether attention has a norm, which words that are normed need not."""
        super().__init__(style, dropout)
        self.attention_norm = style.norm(d_model) if first_norm else nn.Identity()
        self.attention = SelfAttention(d_model, num_heads, **style.self_attention)
        self.feed_forward_norm = style.norm(d_model)
        self.feed_forward = style.feed_forward(d_model, d_ff)

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None,
        bias: Tensor | None = None,
        num_read: int | None = None,
        rotary: KeyValue | None = None,
        unpadding: Unpadding | None = None,
    ) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape, attending to the first lengths [batch] positions or to all.

        bias [1, h or 1, seq, seq] is added to the scores. With num_read, only the first num_read positions are mapped.
        With unpadding x is [tokens, 1, d_model], and the answer too unless only so many positions are mapped.
        """
        out = self.attention.encode(self.before(self.attention_norm, x), lengths, bias, num_read, rotary, unpadding)
        if num_read is not None:
            x = x[:, :num_read] if unpadding is None else unpadding.padded(x, num_read)
        return self.fed(self.feed_forward_norm, self.feed_forward, x, self.after(self.attention_norm, x, out))

    def weights(self, x: Tensor, mask: Tensor, bias: Tensor | None = None, rotary: KeyValue | None = None) -> Tensor:
        """Return the self-attention weights [batch, h, seq, seq] that forward uses where mask is True."""
        return self.attention.weights(self.before(self.attention_norm, x), mask, rotary, bias)


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
        *,
        reach: "Reach | None" = None,
        one_layer: bool = False,
        first_norm: bool = True,
        causal: bool = False,
    ) -> None:
        """Make the layers.

        reach: how far each layer looks, and how it turns heads. None: everywhere, and not at all.
        one_layer: all layers are the same one ("ALBERT", Lan et al. 2020, section 3.1).
        first_norm: the first layer has a norm before its attention.
        causal: without a reach or a relative_bias, no position sees those behind it.
        """
        super().__init__()
        sizes = (d_model, num_heads, d_ff, dropout, style)
        layers = [EncoderLayer(*sizes, first_norm=first_norm)]
        for _ in range(1, num_layers):
            layers.append(layers[0] if one_layer else EncoderLayer(*sizes))
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(layers)
        self.reach = reach
        self.norm = style.last_norm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.relative_bias = relative_bias
        self.causal = causal
        # Whether nobody reads what the places behind lengths become.
        self.unpads = True

    def forward(self, x: Tensor, lengths: Tensor | None, num_read: int | None = None) -> Tensor:
        """Encode embedded x [batch, seq, d_model], of which each row has the first lengths [batch] or all.

        Who reads only the first num_read positions of the answer spares the last layer most of its work.
        """
        seen = self._seen(x)
        x = self.dropout(x)
        unpadding = unpadding_of(x, lengths) if self.unpads and self.layers[0].attention.unpads else None
        x = x if unpadding is None else unpadding.tokens(x)
        last = len(self.layers) - 1
        for index, (layer, (rotary, bias)) in enumerate(zip(self.layers, seen, strict=True)):
            x = layer(x, lengths, bias, num_read if index == last else None, rotary, unpadding)
        out: Tensor = self.norm(x)
        return out if unpadding is None or num_read is not None else unpadding.padded(out)

    def attentions(self, x: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
        """Return each layer's self-attention weights [batch, h, seq, seq] over x [batch, seq, d_model].

        Of each row the first lengths [batch] positions are seen; all of them by default.
        """
        mask = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        if lengths is not None:
            mask = (torch.arange(x.shape[1]) < lengths[:, None])[:, None, None]
        weights = []
        for layer, (rotary, bias) in zip(self.layers, self._seen(x), strict=True):
            weights.append(layer.weights(x, mask, bias, rotary))
            x = layer(x, lengths, bias, None, rotary)
        return weights

    def _seen(self, x: Tensor) -> list[tuple[KeyValue | None, Tensor | None]]:
        """Return each layer's rotation and what is added to its scores."""
        if self.reach is None:
            seen: list[tuple[KeyValue | None, Tensor | None]] = [(None, bias) for bias in self._biases(x.shape[1])]
        else:
            seen = self.reach.of(x.shape[1])
        # The operator wants all of one type.
        return [(rotary, None if bias is None else bias.to(x.dtype)) for rotary, bias in seen]

    def _biases(self, seq: int) -> Sequence[Tensor | None]:
        if self.relative_bias is not None:
            return self.relative_bias.in_layers(self.relative_bias(seq), len(self.layers))
        place = torch.arange(seq)
        bias = torch.where(place > place[:, None], _UNSEEN, 0.0)[None, None] if self.causal else None
        return [bias] * len(self.layers)
