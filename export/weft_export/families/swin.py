"""Swin Transformer: shifted windows in stages that merge patches (Liu et al. 2021), here to classify pictures."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.families.classifier import SCORINGS, SOFTMAX, Classifier
from weft_export.families.sizes import require_among, require_divisible, require_sizes
from weft_export.layers.explaining import Explanation, over_source, pick_layer
from weft_export.layers.feed_forward import ACTIVATIONS, FeedForward
from weft_export.layers.patches import PatchEmbedding
from weft_export.layers.pooling import mean_over_positions
from weft_export.layers.windows import Grid, WindowAttention, pick_windows, spread, window_positions


@dataclass(frozen=True, kw_only=True)
class SwinSizes:
    """Sizes; the paper's symbols stand beside them. Image sizes are in pixels, the window's side in patches."""

    channels: int
    image_height: int  # H
    image_width: int  # W
    patch_size: int
    d_model: int  # C, the width of the first stage; each later one is twice as wide
    depths: tuple[int, ...]  # layers of each stage
    num_heads: tuple[int, ...]  # of each stage
    window_size: int  # M
    expansion: int = 4  # alpha, the feed-forward layer's width over the stage's
    norm_eps: float = 1e-5  # of the layers' norms and the last one
    activation: str = "gelu"  # of ACTIVATIONS

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("activation", self.activation, tuple(ACTIVATIONS))
        if len(self.depths) != len(self.num_heads):
            raise ValueError("depths and num_heads must have one entry for each stage")
        require_divisible("image_height", self.image_height, "patch_size", self.patch_size)
        require_divisible("image_width", self.image_width, "patch_size", self.patch_size)
        for stage, num_heads in enumerate(self.num_heads):
            require_divisible(f"the width of stage {stage}", self.width(stage), f"num_heads[{stage}]", num_heads)
            self._check_grid(stage)

    @property
    def grid(self) -> Grid:
        """Patches down and across."""
        return self.image_height // self.patch_size, self.image_width // self.patch_size

    def width(self, stage: int) -> int:
        """Return the width of a stage's vectors, 2^stage C."""
        return self.d_model << stage

    def grid_of(self, stage: int) -> Grid:
        """Return a stage's rows and columns; each merging halves both."""
        return self.grid[0] // 2**stage, self.grid[1] // 2**stage

    def window_of(self, stage: int) -> int:
        """Return the side of a stage's windows: M, or the grid's shorter side where that is smaller."""
        return min(self.window_size, *self.grid_of(stage))

    def shift_of(self, stage: int, layer: int) -> int:
        """Return how far a layer's windows are shifted, down and across: every second layer's by half a window.

        A window as long as the grid's shorter side is not shifted. The authors' code does the same.
        """
        window = self.window_of(stage)
        return window // 2 if layer % 2 == 1 and window < min(self.grid_of(stage)) else 0

    def _check_grid(self, stage: int) -> None:
        for name, patches in zip(("height", "width"), self.grid, strict=True):
            require_divisible(f"image_{name} / patch_size", patches, f"2 ** stage {stage}", 2**stage)
        for name, side in zip(("height", "width"), self.grid_of(stage), strict=True):
            require_divisible(f"the grid's {name} in stage {stage}", side, "its window", self.window_of(stage))


@dataclass(frozen=True, kw_only=True)
class SwinConfig(SwinSizes):
    """The same under a head of num_labels. scoring: of SCORINGS."""

    num_labels: int
    scoring: str = SOFTMAX

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("scoring", self.scoring, SCORINGS)


class SwinLayer(nn.Module):
    """z + (S)W-MSA(LN(z)), then z + MLP(LN(z)) (eq. 3)."""

    cosine = False

    def __init__(self, config: SwinSizes, stage: int, layer: int) -> None:
        super().__init__()
        width, window, shift = config.width(stage), config.window_of(stage), config.shift_of(stage, layer)
        self.attention_norm = nn.LayerNorm(width, config.norm_eps)
        self.attention = WindowAttention(
            config.grid_of(stage),
            (window, window),
            (shift, shift),
            width,
            config.num_heads[stage],
            cosine=self.cosine,
        )
        self.feed_forward_norm = nn.LayerNorm(width, config.norm_eps)
        self.feed_forward = FeedForward(width, config.expansion * width, activation=config.activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, positions, width] to the same shape."""
        x = x + self.attention(self.attention_norm(x))
        out: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return out

    def weights(self, x: Tensor) -> Tensor:
        """Return the attention weights [batch, windows, h, w, w] that forward uses."""
        return self.attention.weights(self.attention_norm(x))


class PatchMerging(nn.Module):
    """Concatenate each 2 x 2 neighbours and project them from 4 C to 2 C (section 3.1).

    They come in the order of reading: (0, 0), (0, 1), (1, 0), (1, 1). The authors' code takes (1, 0) before (0, 1).
    So in weights from there, swap the second and the third quarter of the inputs of norm and reduction.
    """

    positions: Tensor

    def __init__(self, grid: Grid, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)
        self.register_buffer("positions", window_positions(grid, (2, 2)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, positions, C] to [batch, positions / 4, 2 C]."""
        out: Tensor = self.reduction(self.norm(pick_windows(x, self.positions).flatten(2)))
        return out


class SwinBody(nn.Module):
    """Patches, and stages of layers with merging between them."""

    layer: type[SwinLayer] = SwinLayer
    merging: type[PatchMerging] = PatchMerging

    def __init__(self, config: SwinSizes) -> None:
        super().__init__()
        self.patches = PatchEmbedding(config.channels, config.patch_size, config.d_model)
        self.patch_norm = nn.LayerNorm(config.d_model)
        # Any: torch does not type the items of a ModuleList.
        self.blocks: Any = nn.ModuleList()
        for stage, depth in enumerate(config.depths):
            if stage > 0:
                self.blocks.append(self.merging(config.grid_of(stage - 1), config.width(stage - 1)))
            self.blocks.extend(self.layer(config, stage, layer) for layer in range(depth))

    def encoded(self, pixel_values: Tensor) -> Tensor:
        """Map pixel_values [batch, channels, height, width] to the last stage, [batch, positions, width]."""
        x = self._embed(pixel_values)
        for block in self.blocks:
            x = block(x)
        return x

    def _embed(self, pixel_values: Tensor) -> Tensor:
        embedded: Tensor = self.patch_norm(self.patches(pixel_values))
        return embedded


class Swin(SwinBody, Classifier):
    """A linear head on the mean over the last stage, which a norm passes."""

    def __init__(self, config: SwinConfig) -> None:
        super().__init__(config)
        self.config = config
        width = config.width(len(config.depths) - 1)
        self.norm = nn.LayerNorm(width, config.norm_eps)
        self.head = nn.Linear(width, config.num_labels)
        self.attention_heads = tuple(
            num_heads for depth, num_heads in zip(config.depths, config.num_heads, strict=True) for _ in range(depth)
        )

    def forward(self, *source: Tensor) -> Tensor:
        """Return class logits [batch, labels] for pixel_values [batch, channels, height, width]."""
        logits: Tensor = self.head(mean_over_positions(self.norm(self.encoded(*source))))
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return one row over the first stage's grid, [1, patches].

        The summary is attention rollout (see explaining.rollout). It begins with the mean over the last stage's
        positions, and goes back through the layers:

        - At a layer, a row r over its positions becomes r (A + I) / 2. A is 0 between windows.
        - At a merging, what a position has is shared equally by the four that it came from.

        One layer's row is the mean over its queries. It is shared in the same way.
        """
        x = self._embed(*source)
        seen = []
        for block in self.blocks:
            seen.append(block.weights(x)[0] if isinstance(block, SwinLayer) else None)
            x = block(x)
        rows: list[Tensor] = []
        summary = torch.full((1, x.shape[1]), 1 / x.shape[1])
        for block, weights in zip(reversed(self.blocks), reversed(seen), strict=True):
            if weights is None:
                summary, *rows = (spread(row, block.positions) for row in (summary, *rows))
            else:
                summary = (summary + block.attention.flow(summary, weights)) / 2
                rows.insert(0, block.attention.mean_row(weights, head))
        return over_source(pick_layer(rows, layer, summary))


class SwinV2Layer(SwinLayer):
    """z + LN((S)W-MSA(z)), then z + LN(MLP(z)) ("res-post-norm", section 3.2), with scaled cosine attention."""

    cosine = True

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, positions, width] to the same shape."""
        x = x + self.attention_norm(self.attention(x))
        out: Tensor = x + self.feed_forward_norm(self.feed_forward(x))
        return out

    def weights(self, x: Tensor) -> Tensor:
        """Return the attention weights [batch, windows, h, w, w] that forward uses."""
        return self.attention.weights(x)


class SwinV2Merging(PatchMerging):
    """Concatenate each 2 x 2 neighbours, project them to 2 C, and only then norm them."""

    def __init__(self, grid: Grid, width: int) -> None:
        super().__init__(grid, width)
        self.norm = nn.LayerNorm(2 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, positions, C] to [batch, positions / 4, 2 C]."""
        out: Tensor = self.norm(self.reduction(pick_windows(x, self.positions).flatten(2)))
        return out


class SwinV2(Swin):
    """Swin with the layers and the merging of its second version; the sizes are those of SwinConfig.

    The bias for each offset stands in a table. The paper computes it of the offset's logarithm by a small network.
    For one size of windows both are the same (section 3.3).
    """

    layer = SwinV2Layer
    merging = SwinV2Merging
