"""Pictures as cells of patches, of any number of rows and columns: how patches lie, turn, and stand in windows."""

import torch
from torch import Tensor

# Beside any other score its exponential is 0.
_UNSEEN = -1e4


def patches_of(cells: Tensor, patch: int) -> Tensor:
    """Return the pixels of patches [batch, patches, channels * patch^2], cell behind cell.

    cells: [batch, rows, columns, channels, side, side], each of so many whole patches down and across.
    """
    side = cells.shape[-1] // patch
    apart = cells.reshape(*cells.shape[:4], side, patch, side, patch)
    return apart.permute(0, 1, 2, 4, 6, 3, 5, 7).flatten(5).flatten(1, 4)


def places_of_patches(tables: tuple[Tensor, Tensor], rows: int, columns: int, side: int) -> tuple[Tensor, Tensor]:
    """Return cos and sin of each patch of a picture, [rows, columns, side^2, head_dim / 2].

    Half of a head's pairs turn by the patch's row in the picture, the others by its column.

    tables: cos and sin, [as many as a picture has at most, head_dim / 4] each.
    side: so many patches down and across are a cell.
    """
    shape = rows, columns, side, side, -1
    down = torch.arange(rows)[:, None] * side + torch.arange(side)
    across = torch.arange(columns)[:, None] * side + torch.arange(side)
    cos, sin = (
        torch.cat(
            (table[down][:, None, :, None].expand(shape), table[across][None, :, None].expand(shape)), dim=-1
        ).flatten(2, 3)
        for table in tables
    )
    return cos, sin


class Windows:
    """Windows of so many cells down and across, of which those at the right and lower edge may be cut off.

    Each holds as many cells as a whole one. What a cut one lacks is a copy of its last row or column, and not seen.
    """

    def __init__(self, rows: int, columns: int, size: int) -> None:
        self.rows, self.columns, self.size = rows, columns, size
        self.down, self.across = (rows + size - 1) // size, (columns + size - 1) // size

    def put(self, x: Tensor) -> Tensor:
        """Return cells [batch, rows, columns, patches, width] as [batch * windows, size^2 * patches, width]."""
        size, down, across = self.size, self.down, self.across
        x = x.index_select(1, torch.arange(down * size).clamp(max=self.rows - 1))
        x = x.index_select(2, torch.arange(across * size).clamp(max=self.columns - 1))
        x = x.reshape(x.shape[0], down, size, across, size, *x.shape[3:])
        return x.transpose(2, 3).flatten(3, 5).flatten(0, 2)

    def taken(self, x: Tensor, num_patches: int) -> Tensor:
        """Return what `put` made of cells as they were."""
        size, down, across = self.size, self.down, self.across
        x = x.reshape(-1, down, across, size, size, num_patches, x.shape[-1]).transpose(2, 3)
        x = x.reshape(-1, down * size, across * size, num_patches, x.shape[-1])
        return x[:, : self.rows, : self.columns]

    def unseen(self, num_patches: int, dtype: torch.dtype) -> Tensor:
        """Return what is added to scores, [windows, 1, 1, size^2 * patches]: much below 0 for what is not there."""
        there = (torch.arange(self.down * self.size) < self.rows)[:, None]
        there = there & (torch.arange(self.across * self.size) < self.columns)
        bias = torch.where(there, 0.0, _UNSEEN).to(dtype)
        return self.put_mask(bias[..., None].expand(-1, -1, num_patches))

    def put_mask(self, x: Tensor) -> Tensor:
        """Return whole windows' numbers [rows, columns, patches] as [windows, 1, 1, size^2 * patches]."""
        size = self.size
        x = x.reshape(self.down, size, self.across, size, x.shape[-1]).transpose(1, 2)
        return x.flatten(2).flatten(0, 1)[:, None, None]
