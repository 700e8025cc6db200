"""A residual network whose last stage attends instead of convolving, for image classification.

The residual blocks are those of He et al. 2016. The last stage is that of "Bottleneck Transformers for Visual
Recognition" (Srinivas et al. 2021): self-attention with relative positions takes the place of the 3 x 3 convolution.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from weft_export.families.classifier import Classifier
from weft_export.families.sizes import require_divisible, require_sizes
from weft_export.layers.convolution import ConvolutionBlock
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.pooling import mean_over_positions
from weft_export.layers.residual import AttentionBlock, BasicBlock


@dataclass(frozen=True)
class AttentionResnetConfig:
    """Sizes; image sizes are in pixels. Every width halves the image once: the stem, then one stage for each other."""

    num_labels: int
    channels: int
    image_height: int
    image_width: int
    widths: tuple[int, ...]  # of the stem and of each stage
    num_blocks: int  # in each stage of convolutions
    num_attention_blocks: int  # after them, on the last grid
    num_heads: int
    reduction: int = 4  # of the width inside an attention block

    def __post_init__(self) -> None:
        require_sizes(self)
        scale = 2 ** len(self.widths)
        require_divisible("image_height", self.image_height, "2 ** len(widths)", scale)
        require_divisible("image_width", self.image_width, "2 ** len(widths)", scale)
        require_divisible("the last width", self.widths[-1], "reduction * num_heads", self.reduction * self.num_heads)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the last stage, which attends."""
        scale = 2 ** len(self.widths)
        return self.image_height // scale, self.image_width // scale


class AttentionResnet(Classifier):
    """A stem, stages of residual convolutions, attention blocks, and a linear head on the mean over the grid."""

    def __init__(self, config: AttentionResnetConfig) -> None:
        super().__init__()
        self.config = config
        stem, last = config.widths[0], config.widths[-1]
        self.stem = ConvolutionBlock(config.channels, stem, stride=2)
        self.stages = nn.Sequential()
        for before, after in zip(config.widths, config.widths[1:], strict=False):
            self.stages.append(BasicBlock(before, after, stride=2))
            self.stages.extend(BasicBlock(after, after, stride=1) for _ in range(config.num_blocks - 1))
        # Any: torch does not type the items of a ModuleList.
        self.attentions: Any = nn.ModuleList(
            AttentionBlock(last, last // config.reduction, *config.grid, config.num_heads)
            for _ in range(config.num_attention_blocks)
        )
        self.head = nn.Linear(last, config.num_labels)
        self.attention_heads = (config.num_heads,) * config.num_attention_blocks

    def forward(self, *source: Tensor) -> Tensor:
        """Return class logits [batch, labels] for pixel_values [batch, channels, height, width]."""
        x = self._convolve(*source)
        for block in self.attentions:
            x = block(x)
        logits: Tensor = self.head(mean_over_positions(x.flatten(2).transpose(1, 2)))
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return the row of the mean over the last grid, [1, positions]: rolled out, or of one layer."""
        x = self._convolve(*source)
        attentions = []
        for block in self.attentions:
            attentions.append(block.weights(x))
            x = block(x)
        flow = pick_flow(attentions, layer, head)
        return over_source(flow.mean(dim=0, keepdim=True))

    def _convolve(self, pixel_values: Tensor) -> Tensor:
        grid: Tensor = self.stages(self.stem(pixel_values.to(next(self.parameters()).dtype)))
        return grid
