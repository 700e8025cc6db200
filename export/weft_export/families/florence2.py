"""Florence-2 (Xiao et al. 2024): DaViT sees a picture, and BART reads what it gives with a question behind it.

The question says what is wanted: a caption, objects, text. Places on the picture are tokens of the answer.
"""

from dataclasses import dataclass

from torch import Tensor

from weft_export.families.bart import Bart, BartConfig
from weft_export.families.davit import DavitConfig, DavitTower, PlacedProjection
from weft_export.families.pictured_encoder import PicturedEncoder, joined


@dataclass(frozen=True, kw_only=True)
class Florence2Config(BartConfig):
    """BART's sizes, of which max_source_tokens are a question's, and what sees pictures."""

    sight: DavitConfig

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.windows:
            raise ValueError("model.windows is not for models that read pictures")

    @property
    def num_places(self) -> int:
        """See BartConfig."""
        return self.sight.num_places


class Florence2(PicturedEncoder, Bart):  # type: ignore[misc] # its forward has a picture
    """See PicturedEncoder."""

    config: Florence2Config

    def __init__(self, config: Florence2Config) -> None:
        super().__init__(config)
        self.tower = DavitTower(config.sight)
        self.projector = PlacedProjection(config.sight, config.d_model)

    def see(self, pixel_values: Tensor) -> Tensor:
        """Return what stands before a question, [batch, places, d_model]."""
        seen: Tensor = self.projector(self.tower(pixel_values))
        return seen

    def read(self, seen: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """See PicturedEncoder."""
        words = self.embeddings
        x = joined(seen, words.tokens(ids) * words.style.scale)
        x = x + words.places(x.shape[1])
        encoded: Tensor = self.encoder(x if words.norm is None else words.norm(x), lengths)
        return encoded
