"""Relative positions on a grid: a bias for each offset (Swin), or a vector for each, which queries meet (BoTNet)."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def grid_offsets(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Return how far down and how far across query i lies from key j, int64 [n, n] each.

    Positions are in reading order. The smallest offset is 0: row(i) - row(j) + rows - 1, and
    column(i) - column(j) + columns - 1.
    """
    down = torch.arange(rows).repeat_interleave(columns)
    across = torch.arange(columns).repeat(rows)
    return down[:, None] - down + rows - 1, across[:, None] - across + columns - 1


class GridBias(nn.Module):
    """B of softmax(Q K^T / sqrt(d) + B), looked up by the offset of query and key.

    "Swin Transformer" (Liu et al. 2021), eq. 4. B's values come from a table. It has a line of h numbers for each of
    the (2 rows - 1) x (2 columns - 1) offsets.
    """

    index: Tensor

    def __init__(self, rows: int, columns: int, num_heads: int) -> None:
        super().__init__()
        down, across = grid_offsets(rows, columns)
        self.table = nn.Parameter(torch.randn((2 * rows - 1) * (2 * columns - 1), num_heads) * 0.02)
        self.register_buffer("index", down * (2 * columns - 1) + across, persistent=False)

    def forward(self) -> Tensor:
        """Return B [h, n, n]."""
        return self.table[self.index].permute(2, 0, 1)


class ClassGridBias(nn.Module):
    """GridBias for a sequence that a class token begins, as BEiT has it (Bao et al. 2022, which takes it from T5).

    The last three lines of the table are for the class token to a position, for a position to the class token, and for
    the class token to itself.
    """

    index: Tensor

    def __init__(self, rows: int, columns: int, num_heads: int) -> None:
        super().__init__()
        down, across = grid_offsets(rows, columns)
        num_offsets = (2 * rows - 1) * (2 * columns - 1)
        self.table = nn.Parameter(torch.randn(num_offsets + 3, num_heads) * 0.02)
        index = functional.pad(down * (2 * columns - 1) + across, (1, 0, 1, 0))
        index[0], index[1:, 0], index[0, 0] = num_offsets, num_offsets + 1, num_offsets + 2
        self.register_buffer("index", index, persistent=False)

    def forward(self) -> Tensor:
        """Return the bias [1, h, 1 + n, 1 + n]."""
        return self.table[self.index].permute(2, 0, 1)[None]


class GridKeys(nn.Module):
    """The content-position term q r^T. r = R_h + R_w: a vector for the offset down, and one for the offset across.

    "Bottleneck Transformers for Visual Recognition" (Srinivas et al. 2021), figure 4; all heads share the vectors.
    """

    down_index: Tensor
    across_index: Tensor

    def __init__(self, rows: int, columns: int, head_dim: int) -> None:
        super().__init__()
        down, across = grid_offsets(rows, columns)
        self.down = nn.Parameter(torch.randn(2 * rows - 1, head_dim) * head_dim**-0.5)
        self.across = nn.Parameter(torch.randn(2 * columns - 1, head_dim) * head_dim**-0.5)
        # Where each pair's offset lies in a query-major list of all queries' products with a table.
        queries = torch.arange(rows * columns)[:, None]
        self.register_buffer("down_index", (queries * (2 * rows - 1) + down).flatten(), persistent=False)
        self.register_buffer("across_index", (queries * (2 * columns - 1) + across).flatten(), persistent=False)

    def forward(self, query: Tensor) -> Tensor:
        """Return q r^T [batch, h, n, n] for query [batch, h, n, head_dim]."""
        # Each query is multiplied with each offset once, and each pair picks its product. These are n (2 rows - 1)
        # products instead of n x n.
        down = (query @ self.down.to(query.dtype).t()).flatten(2).index_select(2, self.down_index)
        across = (query @ self.across.to(query.dtype).t()).flatten(2).index_select(2, self.across_index)
        return (down + across).view(*query.shape[:3], query.shape[2])
