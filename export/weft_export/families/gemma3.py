"""Gemma 3 with pictures (Gemma Team 2025): SigLIP's encoder before its decoder.

Patches that lie together are averaged. Their mean passes a norm and a product, and is one place of the prompt. The
places of a picture are read in both directions.
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from weft_export.families.bidirectional import BidirectionalDecoder
from weft_export.families.pictured_decoder import PicturedDecoderConfig
from weft_export.families.siglip import SiglipEncoder, SiglipSizes
from weft_export.families.sizes import require_divisible, require_sizes
from weft_export.layers.style import RmsNorm
from weft_proto.v1 import bundle_pb2


@dataclass(frozen=True, kw_only=True)
class PooledSightConfig:
    """What sees a picture.

    cell: so many patches down and across become one place.
    """

    tower: SiglipSizes
    cell: int

    def __post_init__(self) -> None:
        require_sizes(self)
        for count in self.tower.grid:
            require_divisible("the patches of a side", count, "cell", self.cell)

    @property
    def channels(self) -> int:
        """Of a picture."""
        return self.tower.channels

    @property
    def image_height(self) -> int:
        """In pixels."""
        return self.tower.image_height

    @property
    def image_width(self) -> int:
        """In pixels."""
        return self.tower.image_width

    @property
    def grid(self) -> tuple[int, int]:
        """Places of a picture down and across."""
        return self.tower.grid[0] // self.cell, self.tower.grid[1] // self.cell

    @property
    def num_places(self) -> int:
        """Places of a picture in a prompt."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(PicturedDecoderConfig):
    """A decoder, and what sees pictures for it."""

    sight: PooledSightConfig


class Gemma3(BidirectionalDecoder):
    """See BidirectionalDecoder. A place of a picture sees no place that is beyond its layer's window."""

    bidirectional = bundle_pb2.BIDIRECTIONAL_PICTURES
    near_together = True

    config: Gemma3Config

    def __init__(self, config: Gemma3Config) -> None:
        super().__init__(config)
        tower = config.sight.tower
        self.tower = SiglipEncoder(tower)
        self.norm_of_places = RmsNorm(tower.d_model, tower.norm_eps)
        self.projector = nn.Linear(tower.d_model, config.d_model, bias=False)

    def see(self, pixel_values: Tensor) -> Tensor:
        """See Writer."""
        sight = self.config.sight
        encoded = self.tower.encoded(pixel_values)
        patches = encoded.transpose(1, 2).reshape(encoded.shape[0], -1, *sight.tower.grid)
        pooled = functional.avg_pool2d(patches, sight.cell).flatten(2).transpose(1, 2)
        features: Tensor = self.projector(self.norm_of_places(pooled))
        return features
