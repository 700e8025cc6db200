"""Idefics 3 ("Building and better understanding vision-language models", Laurencon et al. 2024), and SmolVLM after it.

SigLIP's encoder reads tiles of a picture. Patches that lie together become one place of the prompt ("pixel shuffle"),
and a product brings it to the width of the words.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from weft_export.families.pictured_decoder import PicturedDecoder, PicturedDecoderConfig
from weft_export.families.siglip import MergedSightConfig, SiglipEncoder


@dataclass(frozen=True, kw_only=True)
class ShuffledSightConfig(MergedSightConfig):
    """What sees a tile. Tiles are square."""

    def __post_init__(self) -> None:
        if self.image_height != self.image_width:
            raise ValueError("model.image_height differs from image_width; tiles are square")
        super().__post_init__()

    @property
    def tiled(self) -> str:
        """How pictures become tiles: see TilingSpec."""
        return "longest_edge"


@dataclass(frozen=True, kw_only=True)
class Idefics3Config(PicturedDecoderConfig):
    """A decoder, and what sees tiles for it."""

    sight: ShuffledSightConfig


class Idefics3(PicturedDecoder):
    """See PicturedDecoder."""

    config: Idefics3Config

    def __init__(self, config: Idefics3Config) -> None:
        super().__init__(config)
        self.tower = SiglipEncoder(config.sight.tower)
        self.connector = nn.Linear(config.sight.cell**2 * config.sight.tower.d_model, config.d_model, bias=False)

    def see(self, pixel_values: Tensor) -> Tensor:
        """See Writer. Of tiles."""
        (rows, columns), cell = self.config.sight.grid, self.config.sight.cell
        encoded = self.tower.encoded(pixel_values)
        cells = encoded.reshape(encoded.shape[0], rows, cell, columns, cell, -1).transpose(2, 3)
        features: Tensor = self.connector(cells.reshape(encoded.shape[0], rows * columns, -1))
        return features
