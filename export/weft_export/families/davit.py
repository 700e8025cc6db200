"""The tower of DaViT ("DaViT: Dual Attention Vision Transformers", Ding et al. 2022), as Florence-2 has it.

Stages of blocks. Before each, a convolution makes the grid coarser.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.families.sizes import require_among, require_divisible, require_sizes
from weft_export.layers.davit import (
    ChannelAttention,
    ConvolutionEmbedding,
    DavitBlock,
    PlainWindowAttention,
    as_picture,
    grid_behind,
)
from weft_export.layers.feed_forward import ACTIVATIONS
from weft_export.layers.pooling import mean_over_positions
from weft_export.layers.windows import Grid


@dataclass(frozen=True, kw_only=True)
class DavitStage:
    """Sizes of a stage.

    patch_size, stride, filled: of the convolution before it, with so many zeros around.
    norm_first: that has its norm before it, and not behind.
    num_blocks: of each kind.
    """

    d_model: int
    num_blocks: int
    num_heads: int
    num_groups: int
    d_ff: int
    patch_size: int
    stride: int
    filled: int
    norm_first: bool


@dataclass(frozen=True, kw_only=True)
class DavitConfig:
    """Sizes. Image sizes are in pixels, the window's side in places of a grid."""

    channels: int
    image_height: int
    image_width: int
    stages: tuple[DavitStage, ...]
    window_size: int
    qkv_bias: bool = True
    activation: str = "gelu"  # of ACTIVATIONS
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("activation", self.activation, tuple(ACTIVATIONS))
        if not self.stages:
            raise ValueError("model.stages is empty")
        for index, stage in enumerate(self.stages):
            require_divisible(f"stages[{index}].d_model", stage.d_model, "num_heads", stage.num_heads)
            require_divisible(f"stages[{index}].d_model", stage.d_model, "num_groups", stage.num_groups)
            if min(self.grids[index]) < 1:
                raise ValueError(f"the image is too small for stages[{index}] of the model")

    @property
    def grids(self) -> list[Grid]:
        """Rows and columns of each stage."""
        grids, grid = [], (self.image_height, self.image_width)
        for stage in self.stages:
            grid = grid_behind(grid, stage.patch_size, stage.stride, stage.filled)
            grids.append(grid)
        return grids

    @property
    def grid(self) -> Grid:
        """Rows and columns of the last stage."""
        return self.grids[-1]

    @property
    def num_class_tokens(self) -> int:
        """The mean of all places stands before them."""
        return 1

    @property
    def num_places(self) -> int:
        """Places of a picture before a text."""
        return self.num_class_tokens + self.grid[0] * self.grid[1]


class BlockPair(nn.Module):
    """A block that attends within windows, and one that attends between channels."""

    def __init__(self, config: DavitConfig, stage: DavitStage, grid: Grid) -> None:
        super().__init__()
        sizes = (grid, stage.d_model, stage.d_ff)
        choices: dict[str, Any] = {"norm_eps": config.norm_eps, "activation": config.activation}
        bias = config.qkv_bias
        windows = PlainWindowAttention(grid, config.window_size, stage.d_model, stage.num_heads, qkv_bias=bias)
        channels = ChannelAttention(grid[0] * grid[1], stage.d_model, stage.num_groups, qkv_bias=bias)
        self.windows = DavitBlock(windows, *sizes, **choices)
        self.channels = DavitBlock(channels, *sizes, **choices)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, places, width] to the same shape."""
        out: Tensor = self.channels(self.windows(x))
        return out


class DavitTower(nn.Module):
    """A picture to the places of the last stage."""

    def __init__(self, config: DavitConfig) -> None:
        super().__init__()
        self.grids = config.grids
        # Any: torch does not type the items of a ModuleList.
        self.embeddings: Any = nn.ModuleList()
        self.stages: Any = nn.ModuleList()
        before = config.channels
        for stage, grid in zip(config.stages, self.grids, strict=True):
            self.embeddings.append(
                ConvolutionEmbedding(
                    before,
                    stage.d_model,
                    kernel=stage.patch_size,
                    stride=stage.stride,
                    padding=stage.filled,
                    norm_eps=config.norm_eps,
                    norm_first=stage.norm_first,
                )
            )
            self.stages.append(nn.ModuleList(BlockPair(config, stage, grid) for _ in range(stage.num_blocks)))
            before = stage.d_model

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Map pixel_values [batch, channels, height, width] to [batch, places, width]."""
        x = pixel_values.to(self.embeddings[0].convolution.weight.dtype)
        for index, (embedding, blocks) in enumerate(zip(self.embeddings, self.stages, strict=True)):
            x = embedding(x if index == 0 else as_picture(x, self.grids[index - 1]))
            for block in blocks:
                x = block(x)
        return x


class PlacedProjection(nn.Module):
    """Places of a picture with vectors of where they lie, and their mean before them, in the width of words."""

    def __init__(self, config: DavitConfig, d_model: int) -> None:
        super().__init__()
        width = config.stages[-1].d_model
        self.positions = nn.Parameter(torch.randn(config.grid[0] * config.grid[1], width) * 0.02)
        self.projection = nn.Linear(width, d_model, bias=False)
        self.norm = nn.LayerNorm(d_model, config.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, places, width] to [batch, 1 + places, d_model]."""
        placed = x + self.positions
        out: Tensor = self.norm(self.projection(torch.cat((mean_over_positions(placed)[:, None], placed), dim=1)))
        return out
