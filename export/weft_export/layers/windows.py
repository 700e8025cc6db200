"""Windows over a grid: which positions lie in each, shifted or not, which may attend to each other, and how they do."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.explaining import noted, pick_head
from weft_export.layers.grid_positions import GridBias

Grid = tuple[int, int]
"""Something's rows and columns; for a shift, how far down and across."""


def window_positions(grid: Grid, window: Grid, shift: Grid = (0, 0)) -> Tensor:
    """Return the positions in each window, int64 [windows, window's positions], everything in reading order.

    A shifted window that hangs over the grid's end goes on at its beginning. This is the cyclic shift of "Swin
    Transformer" (Liu et al. 2021), section 3.2, figure 4.
    """
    (rows, columns), (height, width) = grid, window
    down = (torch.arange(rows) + shift[0]) % rows
    across = (torch.arange(columns) + shift[1]) % columns
    positions = down[:, None] * columns + across
    tiles = positions.view(rows // height, height, columns // width, width).transpose(1, 2)
    return tiles.reshape(-1, height * width)


def window_mask(grid: Grid, window: Grid, shift: Grid) -> Tensor:
    """Return bool [windows, n, n], True where two positions of a window are neighbours in the picture too.

    Positions that went round the grid's end share a window with positions that did not. Each attends to its own side
    only.
    """
    positions = window_positions(grid, window, shift)
    went_down = positions // grid[1] < shift[0]
    went_across = positions % grid[1] < shift[1]
    side = went_down * 2 + went_across
    return side[:, :, None] == side[:, None, :]


def pick_windows(x: Tensor, positions: Tensor) -> Tensor:
    """Return the windows [batch, windows, w, width] of x [batch, n, width], whose positions are [windows, w]."""
    # index_select, not x[:, positions], which becomes a GatherND between two transpositions.
    return x.index_select(1, positions.flatten()).view(x.shape[0], *positions.shape, x.shape[2])


def place_of(positions: Tensor) -> Tensor:
    """Return where each position of the grid, [n], lies in the flattened windows."""
    flat = positions.flatten()
    # The inverse permutation; argsort would leave a TopK in graphs.
    return torch.zeros_like(flat).scatter(0, flat, torch.arange(len(flat)))


def flow_through(row: Tensor, weights: Tensor, positions: Tensor) -> Tensor:
    """Return row W for a row [1, n] over a grid's positions. W [n, n] is weights within windows, and 0 elsewhere.

    weights is [windows, w, w] over the positions [windows, w].
    """
    inside = row[0, positions][:, None] @ weights
    return inside.flatten()[place_of(positions)][None]


def spread(row: Tensor, positions: Tensor) -> Tensor:
    """Share what each window has in a row [1, windows] equally among its positions: [1, n]."""
    num_inside = positions.shape[1]
    return (row[0, :, None] / num_inside).expand(-1, num_inside).flatten()[place_of(positions)][None]


class WindowAttention(nn.Module):
    """softmax(Q K^T / sqrt(d) + B) V in each window of a grid (eq. 4). A shift other than 0 makes it SW-MSA.

    With `cosine` it is softmax(cos(Q, K) s + B) V, with an s for each head ("Swin Transformer V2", Liu et al. 2022,
    eq. 2). Its B is not less general, though the paper computes it by a small network.

    Gathers with fixed indices pick the windows out of the grid, and put them back. They roll and partition in one.
    """

    positions: Tensor
    places: Tensor
    hidden: Tensor

    def __init__(
        self, grid: Grid, window: Grid, shift: Grid, d_model: int, num_heads: int, *, cosine: bool = False
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        if cosine:
            self.scale = nn.Parameter(torch.full((num_heads, 1, 1), 10.0))  # s; the paper's 1 / tau
        self.cosine = cosine
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)
        self.bias = GridBias(*window, num_heads)
        positions = window_positions(grid, window, shift)
        self.register_buffer("positions", positions, persistent=False)
        self.register_buffer("places", place_of(positions), persistent=False)
        self.register_buffer("hidden", ~window_mask(grid, window, shift)[:, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, positions, d_model] to the same shape."""
        query, key, value = self._project(x)
        mixed = self._weights(query, key).to(value.dtype) @ value
        out: Tensor = self.output(mixed.transpose(2, 3).flatten(3).flatten(1, 2).index_select(1, self.places))
        return out

    def weights(self, x: Tensor) -> Tensor:
        """Return the attention weights [batch, windows, h, w, w] in float32 that forward uses."""
        query, key, _ = self._project(x)
        return noted(self._weights(query, key))

    def flow(self, row: Tensor, weights: Tensor) -> Tensor:
        """Return row A, the step of attention rollout, for a row [1, positions] and weights [windows, h, w, w]."""
        return flow_through(row, weights.mean(dim=1), self.positions)

    def mean_row(self, weights: Tensor, head: Tensor) -> Tensor:
        """Return the mean row [1, positions] over all queries of weights [windows, h, w, w]: of a head, or all (-1)."""
        windows, num_heads = weights.shape[:2]
        means = weights.mean(dim=2).transpose(0, 1).reshape(num_heads, 1, -1) / windows
        return pick_head(means, head)[:, self.places]

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value [batch, windows, h, w, head_dim]."""
        picked = pick_windows(self.qkv(x), self.positions)
        heads = picked.view(*picked.shape[:3], 3 * self.num_heads, -1).transpose(2, 3)
        query, key, value = heads.chunk(3, dim=2)
        return query, key, value

    def _weights(self, query: Tensor, key: Tensor) -> Tensor:
        query, key = query.float(), key.float()
        if self.cosine:
            products = functional.normalize(query, dim=-1) @ functional.normalize(key, dim=-1).transpose(-2, -1)
            scores = products * self.scale.float() + self.bias().float()
        else:
            scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]) + self.bias().float()
        weights: Tensor = scores.masked_fill(self.hidden, -torch.inf).softmax(dim=-1)
        return weights
