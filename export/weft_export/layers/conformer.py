"""The Conformer's layer (Gulati et al. 2020): two half feed-forwards, and attention and a convolution between them.

Attention goes by offsets too: "Transformer-XL" (Dai et al. 2019, section 3.3).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.attention import SelfAttention
from weft_export.layers.cached_attention import split_heads
from weft_export.layers.feed_forward import ACTIVATIONS
from weft_export.layers.style import Style


class ConformerLayer(nn.Module):
    """x + F1(x) / 2, then attention, then a convolution, then + F2(x) / 2, each behind a norm; and a last norm."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, kernel: int, style: Style, *, bias: bool) -> None:
        """Make a layer; kernel and bias are of the convolution."""
        super().__init__()
        self.first_norm = style.norm(d_model)
        self.first = style.feed_forward(d_model, d_ff)
        self.attention_norm = style.norm(d_model)
        self.attention = OffsetAttention(d_model, num_heads, **style.self_attention)
        self.convolution_norm = style.norm(d_model)
        self.convolution = ConformerConvolution(d_model, kernel, style.activation, bias=bias)
        self.second_norm = style.norm(d_model)
        self.second = style.feed_forward(d_model, d_ff)
        self.norm = style.norm(d_model)

    def forward(self, x: Tensor, offsets: Tensor) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape. offsets: see OffsetAttention."""
        x = x + 0.5 * self.first(self.first_norm(x))
        x = x + self.attention.encode(self.attention_norm(x), None, offsets)
        x = x + self.convolution(self.convolution_norm(x))
        x = x + 0.5 * self.second(self.second_norm(x))
        out: Tensor = self.norm(x)
        return out


class OffsetAttention(SelfAttention):
    """softmax(((q + u) k^T + (q + v) r^T) / sqrt(d)): r is a key for each offset of two positions.

    u is in the bias of queries. So what is added here to a query is v - u.
    """

    def __init__(self, d_model: int, num_heads: int, **options: object) -> None:
        super().__init__(d_model, num_heads, **options)  # type: ignore[arg-type]
        self.offset_keys = nn.Linear(d_model, self.output.in_features, bias=False)
        self.offset_bias = nn.Parameter(torch.zeros(num_heads, self.output.in_features // num_heads))

    def bias_of(self, query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor | None:  # noqa: ARG002 - as the base
        """Return what is added to scores, [batch, h, seq, seq], for vectors of offsets `bias` [2 seq - 1, d_model].

        They are of the offsets from seq - 1 down to 1 - seq: how far a query is behind a key.
        """
        assert bias is not None, "offsets have vectors. This is a bug."
        keys = split_heads(self.offset_keys(bias)[None], self.num_heads)
        seq, scale = query.shape[2], query.shape[-1] ** -0.5
        scores = (query + self.offset_bias[:, None]) @ keys.transpose(-2, -1) * scale
        # Query i has its own seq numbers from place seq - 1 - i on. With one number before each row, these are the
        # first of each row where rows are cut 1 shorter, from the second number of seq on.
        flat = functional.pad(scores, (1, 0)).flatten(2)[:, :, seq:]
        return flat.reshape(*flat.shape[:2], seq, 2 * seq - 1)[..., :seq]


class ConformerConvolution(nn.Module):
    """A gated product, each channel convolved by itself, an activation, a product; the BatchNorm is in the kernel."""

    def __init__(self, d_model: int, kernel: int, activation: str, *, bias: bool) -> None:
        super().__init__()
        self.pointwise_1 = nn.Linear(d_model, 2 * d_model, bias=bias)
        self.convolution = nn.Conv1d(d_model, d_model, kernel, padding=(kernel - 1) // 2, groups=d_model)
        self.activation = ACTIVATIONS[activation]
        self.pointwise_2 = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape."""
        x = functional.glu(self.pointwise_1(x), dim=-1)
        x = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        out: Tensor = self.pointwise_2(self.activation(x))
        return out


def offset_vectors(most: int, d_model: int) -> Tensor:
    """Return vectors [2 most - 1, d_model] of the offsets from most - 1 to 1 - most: sines and cosines in turns."""
    rates = 1 / 10000.0 ** (torch.arange(0, d_model, 2) / d_model)
    angles = torch.arange(most - 1, -most, -1)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
