"""PaliGemma (Beyer et al. 2024) and its second version (Steiner et al. 2024): SigLIP's encoder before Gemma 1 or 2.

A product brings each patch to the width of the words. Picture and question are read in both directions.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from weft_export.families.bidirectional import BidirectionalDecoder
from weft_export.families.pictured_decoder import PicturedDecoderConfig
from weft_export.families.siglip import SiglipEncoder, SiglipSizes
from weft_proto.v1 import bundle_pb2


@dataclass(frozen=True, kw_only=True)
class PatchSightConfig(SiglipSizes):
    """What sees a picture. Each patch is a place of the prompt."""

    @property
    def num_places(self) -> int:
        """Places of a picture in a prompt."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True, kw_only=True)
class PaliGemmaConfig(PicturedDecoderConfig):
    """A decoder, and what sees pictures for it."""

    sight: PatchSightConfig


class PaliGemma(BidirectionalDecoder):
    """See BidirectionalDecoder. Within a prompt there are no windows."""

    bidirectional = bundle_pb2.BIDIRECTIONAL_PROMPT

    config: PaliGemmaConfig

    def __init__(self, config: PaliGemmaConfig) -> None:
        super().__init__(config)
        self.tower = SiglipEncoder(config.sight)
        self.projector = nn.Linear(config.sight.d_model, config.d_model)

    def see(self, pixel_values: Tensor) -> Tensor:
        """See Writer."""
        features: Tensor = self.projector(self.tower.encoded(pixel_values))
        return features
