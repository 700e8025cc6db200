"""Qwen3-VL (Bai et al. 2025): pictures at a size near their own, of which the decoder reads several layers.

Patches have positions that are learned for a square, and lie between these for pictures of other sizes. What the
encoder makes of a picture at some of its layers is added behind the first layers of the decoder ("DeepStack", Meng et
al. 2024).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.families.qwen_vl import CellSightConfig, CellTower, QwenVl, QwenVlConfig
from weft_export.layers.cells import patches_of, places_of_patches


@dataclass(frozen=True, kw_only=True)
class DeepSightConfig(CellSightConfig):
    """What sees a picture of cells.

    position_side: so many learned positions down and across.
    deep_layers: how many layers a picture passes before it is read for the first layer of the decoder, the second ...
    """

    position_side: int
    deep_layers: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.deep_layers) != sorted({*self.deep_layers}) or self.deep_layers[-1] > self.num_layers:
            raise ValueError(f"model.deep_layers must ascend, and be of {self.num_layers} layers")
        if self.gated or self.rms_norm or self.windows:
            raise ValueError("model.gated, rms_norm and windows are for cells that are read once")


@dataclass(frozen=True, kw_only=True)
class Qwen3VlConfig(QwenVlConfig):
    """A decoder, and what sees pictures for it."""

    sight: DeepSightConfig

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.sight.deep_layers) > self.num_layers:
            raise ValueError(f"model.deep_layers has {len(self.sight.deep_layers)}; the decoder has {self.num_layers}")


class DeepMerger(nn.Module):
    """Makes a place of the prompt of a cell, between two layers: a norm of all its patches, and two products."""

    def __init__(self, wide: int, d_out: int, eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(wide, eps)
        self.linear_1 = nn.Linear(wide, wide)
        self.linear_2 = nn.Linear(wide, d_out)

    def forward(self, x: Tensor) -> Tensor:
        """Map cells [batch, cells, patches * width] to [batch, cells, d_out]."""
        out: Tensor = self.linear_2(nn.functional.gelu(self.linear_1(self.norm(x))))
        return out


class DeepTower(CellTower):
    """CellTower with positions, which also reads between its layers."""

    def __init__(self, sight: DeepSightConfig, d_out: int) -> None:
        super().__init__(sight, d_out)
        side, wide = sight.position_side, sight.cell**2 * sight.d_model
        self.deep_layers = sight.deep_layers
        self.patches = nn.Linear(sight.channels * sight.patch_size**2, sight.d_model)
        self.positions = nn.Parameter(torch.randn(side, side, sight.d_model) * 0.02)
        # Any: torch does not type the items of a ModuleList.
        self.mergers: Any = nn.ModuleList(DeepMerger(wide, d_out, sight.norm_eps) for _ in sight.deep_layers)

    def forward(self, cells: Tensor) -> Tensor:
        """Map pixels as CellTower does to [batch, rows * columns, (1 + deep layers) * d_out]."""
        sight, (rows, columns) = self.sight, cells.shape[1:3]
        x = self.patches(patches_of(cells.to(self.cos.dtype), sight.patch_size))
        x = x + self._placed(rows, columns)
        cos, sin = places_of_patches((self.cos, self.sin), rows, columns, sight.cell)
        everywhere = cos.flatten(0, 2), sin.flatten(0, 2)
        deep: list[Tensor] = []
        for number, layer in enumerate(self.layers, 1):
            x = layer(x, None, None, None, everywhere)
            if number in self.deep_layers:
                deep.append(self.mergers[len(deep)](self._cells(x, rows * columns)))
        merged = self.linear_2(nn.functional.gelu(self.linear_1(self._cells(self.norm(x), rows * columns))))
        return torch.cat((merged, *deep), dim=-1)

    def _cells(self, x: Tensor, count: int) -> Tensor:
        """Return the patches of each cell beside each other."""
        return x.reshape(x.shape[0], count, self.sight.cell**2 * self.sight.d_model)

    def _placed(self, rows: int, columns: int) -> Tensor:
        """Return the positions of patches, cell behind cell, [patches, d_model]: between the learned ones."""
        cell = self.sight.cell
        laid = self._between(self._between(self.positions, rows * cell).transpose(0, 1), columns * cell).transpose(0, 1)
        laid = laid.reshape(rows, cell, columns, cell, self.sight.d_model).transpose(1, 2)
        return laid.reshape(rows * columns * cell**2, self.sight.d_model)

    def _between(self, table: Tensor, count: int) -> Tensor:
        """Return `count` rows of a table [side, ...], of which the first and the last are its own."""
        last, place = table.shape[0] - 1, torch.arange(count, dtype=torch.float32)
        at = place * last / place[-1:].clamp(min=1)
        first = at.floor()
        share = (at - first).to(table.dtype)[:, None, None]
        lower = first.long()
        return table[lower] * (1 - share) + table[(lower + 1).clamp(max=last)] * share


class Qwen3Vl(QwenVl):
    """See QwenVl."""

    tower_class = DeepTower

    config: Qwen3VlConfig

    @property
    def feature_width(self) -> int:
        """See Writer."""
        return (1 + len(self.config.sight.deep_layers)) * self.config.d_model

    def _added(self, ids: Tensor, features: Tensor) -> Sequence[Tensor | None]:
        seen = (ids == self.config.vocab_size)[..., None]
        deep = features.chunk(1 + len(self.config.sight.deep_layers), dim=-1)[1:]
        added = [torch.where(seen, each, 0.0) for each in deep]
        return [*added, *(None,) * (len(self.layers) - len(deep))]
