"""Residual blocks, of convolutions or around self-attention; a norm behind a convolution folds into it.

"Deep Residual Learning for Image Recognition" (He et al. 2016), figures 2 and 5; "Bottleneck Transformers for Visual
Recognition" (Srinivas et al. 2021), figures 1 and 4.
"""

import math

from torch import Tensor, nn

from weft_export.layers.cached_attention import split_qkv
from weft_export.layers.convolution import ConvolutionBlock
from weft_export.layers.explaining import noted
from weft_export.layers.grid_positions import GridKeys


class Projection(nn.Module):
    """BatchNorm(x * W) without an activation, to be added to a shortcut or to be one."""

    def __init__(self, channels: int, out_channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, out_channels, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, channels, height, width] to [batch, out_channels, height / stride, width / stride]."""
        out: Tensor = self.norm(self.convolution(x))
        return out


class BasicBlock(nn.Module):
    """ReLU(F(x) + x). F is two 3 x 3 convolutions. Where the shape changes, the shortcut is a projection."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        same = stride == 1 and channels == out_channels
        self.first = ConvolutionBlock(channels, out_channels, stride)
        self.second = Projection(out_channels, out_channels, 3)
        self.shortcut = nn.Identity() if same else Projection(channels, out_channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, channels, height, width] to [batch, out_channels, height / stride, width / stride]."""
        out: Tensor = (self.second(self.first(x)) + self.shortcut(x)).relu()
        return out


class Bottleneck(nn.Module):
    """ReLU(F(x) + x). F is convolutions of 1 x 1, 3 x 3 and 1 x 1, and narrow in its middle.

    The 3 x 3 one has the stride, or with halves_first the one before it, as in the paper.
    """

    def __init__(self, channels: int, out_channels: int, stride: int, *, halves_first: bool) -> None:
        super().__init__()
        same, width = stride == 1 and channels == out_channels, out_channels // 4
        strides = (stride, 1) if halves_first else (1, stride)
        self.reduce = Projection(channels, width, 1, strides[0])
        self.middle = Projection(width, width, 3, strides[1])
        self.expand = Projection(width, out_channels, 1)
        self.shortcut = nn.Identity() if same else Projection(channels, out_channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, channels, height, width] to [batch, out_channels, height / stride, width / stride]."""
        narrow = self.middle(self.reduce(x).relu()).relu()
        out: Tensor = (self.expand(narrow) + self.shortcut(x)).relu()
        return out


class GridAttention(nn.Module):
    """Self-attention of a grid's positions to all others, softmax((q k^T + q r^T) / sqrt(d)) v (MHSA, figure 4)."""

    def __init__(self, rows: int, columns: int, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.positions = GridKeys(rows, columns, width // num_heads)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, positions, width] to the same shape."""
        query, key, value = split_qkv(self.qkv(x), self.num_heads, self.num_heads)
        return (self._weights(query, key).to(value.dtype) @ value).transpose(1, 2).flatten(2)

    def weights(self, x: Tensor) -> Tensor:
        """Return the attention weights [batch, h, positions, positions] in float32 that forward uses."""
        query, key, _ = split_qkv(self.qkv(x), self.num_heads, self.num_heads)
        return noted(self._weights(query, key))

    def _weights(self, query: Tensor, key: Tensor) -> Tensor:
        # Scaled first and in float32: in half precision the products of large queries would overflow.
        query = query.float() / math.sqrt(query.shape[-1])
        weights: Tensor = (query @ key.float().transpose(-2, -1) + self.positions(query)).softmax(dim=-1)
        return weights


class AttentionBlock(nn.Module):
    """ReLU(F(x) + x), F being a bottleneck whose 3 x 3 convolution is replaced by self-attention (the BoT block)."""

    def __init__(self, channels: int, width: int, rows: int, columns: int, num_heads: int) -> None:
        super().__init__()
        self.reduce = Projection(channels, width, 1)
        self.attention = GridAttention(rows, columns, width, num_heads)
        self.norm = nn.BatchNorm1d(width)
        self.expand = Projection(width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, channels, rows, columns] to the same shape."""
        mixed = self.norm(self.attention(self._reduced(x)).transpose(1, 2)).relu()
        out: Tensor = (self.expand(mixed.unflatten(2, x.shape[2:])) + x).relu()
        return out

    def weights(self, x: Tensor) -> Tensor:
        """Return the attention weights [batch, h, positions, positions] that forward uses."""
        return self.attention.weights(self._reduced(x))

    def _reduced(self, x: Tensor) -> Tensor:
        reduced: Tensor = self.reduce(x).relu()
        return reduced.flatten(2).transpose(1, 2)
