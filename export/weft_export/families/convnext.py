"""ConvNeXt for image classification ("A ConvNet for the 2020s", Liu et al. 2022)."""

from dataclasses import dataclass

from torch import Tensor, nn

from weft_export.families.classifier import SCORINGS, SOFTMAX, Classifier
from weft_export.families.sizes import require_among, require_sizes
from weft_export.layers.feed_forward import ACTIVATIONS, FeedForward
from weft_export.layers.pooling import mean_over_positions

_EPS = 1e-6
"""Of all norms but the last."""


@dataclass(frozen=True)
class ConvNextConfig:
    """Sizes; image sizes are in pixels."""

    num_labels: int
    channels: int
    image_height: int
    image_width: int
    patch_size: int
    widths: tuple[int, ...]  # of each stage
    depths: tuple[int, ...]  # blocks of each stage
    norm_eps: float = 1e-12  # of the last norm
    activation: str = "gelu"  # of ACTIVATIONS
    scoring: str = SOFTMAX  # of SCORINGS

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("scoring", self.scoring, SCORINGS)
        require_among("activation", self.activation, tuple(ACTIVATIONS))
        if len(self.widths) != len(self.depths):
            raise ValueError("widths and depths must have one entry for each stage")
        if min(self.grid) < 1:
            raise ValueError("the image is smaller than patch_size * 2 ** (stages - 1), which the last stage needs")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the last stage; what a convolution does not fill is left out."""
        scale = self.patch_size * 2 ** (len(self.widths) - 1)
        return self.image_height // scale, self.image_width // scale


class ConvNextBlock(nn.Module):
    """x + W2 f(W1 LN(d x)) (figure 4); d is a depthwise convolution of 7 x 7.

    Layer scale is part of W2's weights.
    """

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, _EPS)
        self.feed_forward = FeedForward(width, 4 * width, activation=activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, channels, height, width] to the same shape."""
        mixed = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        out: Tensor = x + self.feed_forward(mixed).permute(0, 3, 1, 2)
        return out


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of a grid."""

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, channels, height, width] to the same shape."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNext(Classifier):
    """Patches, stages of blocks with a halving between them, and a linear head on the norm of the mean."""

    def __init__(self, config: ConvNextConfig) -> None:
        super().__init__()
        self.config = config
        first, last, side = config.widths[0], config.widths[-1], config.patch_size
        self.stages = nn.Sequential(nn.Conv2d(config.channels, first, side, stride=side), ChannelNorm(first, _EPS))
        before = first
        for stage, (width, depth) in enumerate(zip(config.widths, config.depths, strict=True)):
            if stage > 0:
                self.stages.extend((ChannelNorm(before, _EPS), nn.Conv2d(before, width, 2, stride=2)))
            self.stages.extend(ConvNextBlock(width, config.activation) for _ in range(depth))
            before = width
        self.norm = nn.LayerNorm(last, config.norm_eps)
        self.head = nn.Linear(last, config.num_labels)

    def forward(self, *source: Tensor) -> Tensor:
        """Return class logits [batch, labels] for pixel_values [batch, channels, height, width]."""
        (pixel_values,) = source
        grid = self.stages(pixel_values.to(self.head.weight.dtype))
        logits: Tensor = self.head(self.norm(mean_over_positions(grid.flatten(2).transpose(1, 2))))
        return logits
