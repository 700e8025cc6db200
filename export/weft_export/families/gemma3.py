"""Gemma 3 with pictures (Gemma Team 2025): SigLIP's encoder before its decoder.

Patches that lie together are averaged. Their mean passes a norm and a product, and is one place of the prompt. The
places of a picture are read in both directions.
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from weft_export.families.bidirectional import BidirectionalDecoder
from weft_export.families.pictured_decoder import PicturedDecoderConfig
from weft_export.families.siglip import MergedSightConfig, SiglipEncoder
from weft_export.layers.style import RmsNorm
from weft_proto.v1 import bundle_pb2


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(PicturedDecoderConfig):
    """A decoder, and what sees pictures for it."""

    sight: MergedSightConfig


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
