"""A picture to a vector: a Vision Transformer's body, as self-supervised ones are used (DINOv2, Oquab et al. 2023)."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from weft_export.families.encoder_only import FIRST, MEAN
from weft_export.families.sizes import require_among
from weft_export.families.vit import VitBody, VitSizes
from weft_export.layers.explaining import Explanation, over_source
from weft_export.layers.pooling import mean_over_positions


@dataclass(frozen=True, kw_only=True)
class VitEmbedderConfig(VitSizes):
    """A body. pooling: the vector of the class token, FIRST, or the MEAN of the patches'. normalized: of length 1."""

    pooling: str = FIRST
    normalized: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("pooling", self.pooling, (FIRST, MEAN))

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return self.d_model


class VitEmbedder(VitBody):
    """Turns a picture into a vector."""

    config: VitEmbedderConfig

    def forward(self, *source: Tensor) -> Tensor:
        """Return vectors [batch, d_model] for pixel_values [batch, channels, height, width]."""
        (pixel_values,) = source
        if self.config.pooling == FIRST:
            pooled = self.encoded(pixel_values, num_read=1)[:, 0]
        else:
            pooled = mean_over_positions(self.encoded(pixel_values)[:, 1:])
        # In float32 at any precision: squares of float16 overflow soon.
        return functional.normalize(pooled.float(), dim=-1) if self.config.normalized else pooled

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return over the patches, [1, patches], the row that is read: the class token's, or the mean of all."""
        flow = self.flow(layer, head, *source)[:, 1:]
        return over_source(flow[:1] if self.config.pooling == FIRST else flow[1:].mean(dim=0, keepdim=True))
