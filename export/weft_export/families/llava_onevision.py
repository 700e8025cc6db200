"""LLaVA-OneVision (Li et al. 2024): SigLIP's encoder before a decoder. A picture that is alone is read in tiles.

The encoder reads tiles, whatever pictures they are of. Behind a tile's places it gives what ends a row of them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft_export.families.llava import Llava, LlavaConfig, check_reading
from weft_export.families.siglip import SiglipSizes, SiglipTower
from weft_export.layers.tiles import arranged


@dataclass(frozen=True, kw_only=True)
class TileSightConfig(SiglipSizes):
    """What sees a tile, as SightConfig. Tiles are square."""

    feature_layers: tuple[int, ...]
    projector_activation: str = "gelu"
    projector_bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reading(self)
        if self.image_height != self.image_width:
            raise ValueError("model.image_height differs from image_width; tiles are square")

    @property
    def tiled(self) -> str:
        """How pictures become tiles: see TilingSpec."""
        return "grids"

    @property
    def num_places(self) -> int:
        """Places of a picture that is one of several in its prompt: of one tile, and the end of a row."""
        return self.grid[0] * self.grid[1] + 1


@dataclass(frozen=True, kw_only=True)
class LlavaOnevisionConfig(LlavaConfig):
    """A decoder, and what sees tiles for it."""

    sight: TileSightConfig  # type: ignore[assignment]  # another tower of the same use


class LlavaOnevision(Llava):
    """Llava, but for what stands in a prompt in the place of a picture: see TilingSpec."""

    tower_class = SiglipTower

    def __init__(self, config: LlavaOnevisionConfig) -> None:
        super().__init__(config)
        self.row_end = nn.Parameter(torch.randn(1, config.d_model) * config.d_model**-0.5)

    def see(self, pixel_values: Tensor) -> Tensor:
        """See Writer. Of tiles, with the end of a row behind the places of each."""
        features = self._read_tower(pixel_values)
        return torch.cat((features, self.row_end.expand(features.shape[0], 1, -1)), dim=1)

    def shown(self, *source: Tensor) -> Tensor:
        """See Writer. With a second tensor, the first has the tiles of one picture. See `arranged`."""
        pixel_values, *arrangement = source
        features = self.see(pixel_values)
        return arranged(features, *arrangement) if arrangement else features
