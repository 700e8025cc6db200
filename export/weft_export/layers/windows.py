"""Windows over a grid: which positions lie in each, shifted or not, and which of them may attend to each other."""

import torch
from torch import Tensor

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
