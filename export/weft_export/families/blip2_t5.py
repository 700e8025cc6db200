"""BLIP-2 (Li et al. 2023) with a T5, whose encoder reads what the queries make of a picture, and then a text."""

from dataclasses import dataclass

from torch import Tensor

from weft_export.families.blip2 import QueriedSight, QuerySightConfig
from weft_export.families.pictured_encoder import PicturedEncoder, joined
from weft_export.families.t5 import T5, T5Config


@dataclass(frozen=True, kw_only=True)
class Blip2T5Config(T5Config):
    """T5's sizes, of which max_source_tokens are a question's, and what sees pictures."""

    sight: QuerySightConfig

    @property
    def num_places(self) -> int:
        """See T5Config."""
        return self.sight.num_places


class Blip2T5(PicturedEncoder, QueriedSight, T5):  # type: ignore[misc] # its forward has a picture
    """See PicturedEncoder."""

    config: Blip2T5Config

    def __init__(self, config: Blip2T5Config) -> None:
        super().__init__(config)
        self.look_with(config.sight, config.d_model)

    def read(self, seen: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """See PicturedEncoder."""
        encoded: Tensor = self.encoder(joined(seen, self.decoder.embedding(ids)), lengths)
        return encoded
