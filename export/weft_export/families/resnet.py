"""A residual network for image classification ("Deep Residual Learning ...", He et al. 2016)."""

from dataclasses import dataclass

from torch import Tensor, nn

from weft_export.families.classifier import SCORINGS, SOFTMAX, Classifier
from weft_export.families.sizes import require_among, require_sizes
from weft_export.layers.pooling import mean_over_positions
from weft_export.layers.residual import BasicBlock, Bottleneck, Projection


@dataclass(frozen=True)
class ResnetConfig:
    """Sizes; image sizes are in pixels."""

    num_labels: int
    channels: int
    image_height: int
    image_width: int
    widths: tuple[int, ...]  # of the stem, and of each stage
    depths: tuple[int, ...]  # blocks of each stage
    bottleneck: bool = True  # blocks of three convolutions, and not of two
    halves_first: bool = False  # a bottleneck's first convolution has its stride, as in the paper
    first_stage_halves: bool = False
    scoring: str = SOFTMAX  # of SCORINGS

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("scoring", self.scoring, SCORINGS)
        if len(self.widths) != len(self.depths) + 1:
            raise ValueError("widths must have one entry for the stem, and one for each of depths")
        if self.bottleneck and min(self.widths[1:]) < 4:
            raise ValueError("widths of stages with a bottleneck must be at least 4")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the last stage. The stem halves twice, and an odd side is rounded up."""
        scale = 2 ** (len(self.depths) + 1 + self.first_stage_halves)
        return -(-self.image_height // scale), -(-self.image_width // scale)


class Resnet(Classifier):
    """A stem of 7 x 7, stages of residual blocks, and a linear head on the mean over the grid (table 1)."""

    def __init__(self, config: ResnetConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Projection(config.channels, config.widths[0], 7, stride=2)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stages = nn.Sequential()
        for stage, depth in enumerate(config.depths):
            before, after = config.widths[stage : stage + 2]
            halves = stage > 0 or config.first_stage_halves
            self.stages.append(self._block(before, after, stride=2 if halves else 1))
            self.stages.extend(self._block(after, after, stride=1) for _ in range(depth - 1))
        self.head = nn.Linear(config.widths[-1], config.num_labels)

    def forward(self, *source: Tensor) -> Tensor:
        """Return class logits [batch, labels] for pixel_values [batch, channels, height, width]."""
        (pixel_values,) = source
        grid = self.stages(self.pool(self.stem(pixel_values.to(self.head.weight.dtype)).relu()))
        logits: Tensor = self.head(mean_over_positions(grid.flatten(2).transpose(1, 2)))
        return logits

    def _block(self, channels: int, out_channels: int, stride: int) -> nn.Module:
        if self.config.bottleneck:
            return Bottleneck(channels, out_channels, stride, halves_first=self.config.halves_first)
        return BasicBlock(channels, out_channels, stride)
