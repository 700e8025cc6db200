"""The blocks of DaViT ("DaViT: Dual Attention Vision Transformers", Ding et al. 2022).

One block attends within windows of the grid, as Swin without shifts. The next one attends between channels. Before each
sublayer a depthwise convolution tells places apart: there are no vectors of places.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.feed_forward import FeedForward
from weft_export.layers.windows import Grid, pick_windows


class LocalMixing(nn.Module):
    """x + a depthwise convolution of 3 x 3 over a grid's places (the paper's CPE)."""

    def __init__(self, grid: Grid, width: int) -> None:
        super().__init__()
        self.grid = grid
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, places, width] to the same shape."""
        out: Tensor = x + self.depthwise(as_picture(x, self.grid)).flatten(2).transpose(1, 2)
        return out


class PlainWindowAttention(nn.Module):
    """softmax(Q K^T / sqrt(d)) V in each window of a grid (eq. 3).

    Windows that hang over the grid's end are filled up with places of zeros. These are attended to, as in the authors'
    code: their queries, keys and values are the biases.
    """

    positions: Tensor
    places: Tensor

    def __init__(self, grid: Grid, window: int, width: int, num_heads: int, *, qkv_bias: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width, bias=qkv_bias)
        self.output = nn.Linear(width, width)
        positions, places = windows_over(grid, window)
        self.is_filled = any(side % window for side in grid)
        self.register_buffer("positions", positions, persistent=False)
        self.register_buffer("places", places, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, places, width] to the same shape."""
        if self.is_filled:
            x = functional.pad(x, (0, 0, 0, 1))
        picked = pick_windows(self.qkv(x), self.positions)
        heads = picked.view(*picked.shape[:3], 3 * self.num_heads, -1).transpose(2, 3)
        query, key, value = heads.chunk(3, dim=2)
        scores = query.float() @ key.float().transpose(-2, -1) / math.sqrt(query.shape[-1])
        mixed = scores.softmax(dim=-1).to(value.dtype) @ value
        out: Tensor = self.output(mixed.transpose(2, 3).flatten(3).flatten(1, 2).index_select(1, self.places))
        return out


def windows_over(grid: Grid, window: int) -> tuple[Tensor, Tensor]:
    """Return the positions in each window, int64 [windows, window * window], and where each position lies in these.

    A place outside of the grid has the number of its positions, which is none of them.
    """
    rows, columns = grid
    high, wide = (-(-side // window) for side in grid)
    numbers = torch.arange(rows * columns).view(rows, columns)
    filling = (0, wide * window - columns, 0, high * window - rows)
    tiles = functional.pad(numbers, filling, value=rows * columns).view(high, window, wide, window).transpose(1, 2)
    down, across = torch.arange(rows)[:, None], torch.arange(columns)
    first = (down // window * wide + across // window) * window**2
    places = first + down % window * window + across % window
    return tiles.reshape(-1, window * window), places.flatten()


class ChannelAttention(nn.Module):
    """softmax(Q^T K / sqrt(n)) V^T between the channels of a group, over all n places (eq. 5, in the authors' code)."""

    def __init__(self, num_places: int, width: int, num_groups: int, *, qkv_bias: bool) -> None:
        super().__init__()
        self.num_places = num_places
        self.num_groups = num_groups
        self.qkv = nn.Linear(width, 3 * width, bias=qkv_bias)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, places, width] to the same shape."""
        projected = self.qkv(x)
        groups = projected.view(*projected.shape[:2], 3 * self.num_groups, -1).permute(0, 2, 3, 1)
        query, key, value = groups.chunk(3, dim=1)
        scores = query.float() @ key.float().transpose(-2, -1) / math.sqrt(self.num_places)
        mixed = scores.softmax(dim=-1).to(value.dtype) @ value
        out: Tensor = self.output(mixed.permute(0, 3, 1, 2).flatten(2))
        return out


class DavitBlock(nn.Module):
    """An attention and a feed-forward layer, each on the norm of locally mixed places (figure 3)."""

    def __init__(
        self,
        attention: PlainWindowAttention | ChannelAttention,
        grid: Grid,
        width: int,
        d_ff: int,
        *,
        norm_eps: float,
        activation: str,
    ) -> None:
        super().__init__()
        self.attention_mixing = LocalMixing(grid, width)
        self.attention_norm = nn.LayerNorm(width, norm_eps)
        self.attention = attention
        self.feed_forward_mixing = LocalMixing(grid, width)
        self.feed_forward_norm = nn.LayerNorm(width, norm_eps)
        self.feed_forward = FeedForward(width, d_ff, activation=activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, places, width] to the same shape."""
        x = self.attention_mixing(x)
        x = x + self.attention(self.attention_norm(x))
        x = self.feed_forward_mixing(x)
        out: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return out


class ConvolutionEmbedding(nn.Module):
    """A convolution that makes fewer and wider places of a grid's, and a LayerNorm behind it, or before."""

    def __init__(
        self, width: int, out_width: int, *, kernel: int, stride: int, padding: int, norm_eps: float, norm_first: bool
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, out_width, kernel, stride=stride, padding=padding)
        self.norm_first = norm_first
        self.norm = nn.LayerNorm(width if norm_first else out_width, norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, channels, height, width] to places [batch, rows * columns, out_width] in reading order."""
        if self.norm_first:
            x = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        places: Tensor = self.convolution(x).flatten(2).transpose(1, 2)
        normed: Tensor = places if self.norm_first else self.norm(places)
        return normed


def grid_behind(grid: Grid, kernel: int, stride: int, padding: int) -> Grid:
    """Return the rows and columns that a convolution makes of a grid, or of a picture's pixels."""
    rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side in grid)
    return rows, columns


def as_picture(x: Tensor, grid: Grid) -> Tensor:
    """Return places [batch, rows * columns, width] as [batch, width, rows, columns]."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], *grid)
