"""Donut (Kim et al. 2022): a Swin Transformer reads the picture of a page, and BART's decoder writes what is on it."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft_export.families.sequence_to_sequence import AskedDecoder
from weft_export.families.sizes import require_head, require_sizes
from weft_export.families.swin import SwinBody, SwinSizes
from weft_export.layers.decoder import Decoder
from weft_export.layers.embeddings import Embeddings, EmbeddingStyle
from weft_export.layers.style import Style


@dataclass(frozen=True, kw_only=True)
class DonutConfig:
    """Sizes and choices. Lengths are in tokens.

    max_target_tokens: those of a question and an answer.
    """

    tower: SwinSizes
    target_vocab_size: int
    max_target_tokens: int
    d_model: int
    num_decoder_heads: int
    d_decoder_ff: int
    num_decoder_layers: int
    style: Style = field(default_factory=Style)
    embeddings: EmbeddingStyle = field(default_factory=EmbeddingStyle)

    def __post_init__(self) -> None:
        require_sizes(self)
        require_head("d_model / num_decoder_heads", self.d_model, self.num_decoder_heads, 8)

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
    def last_stage(self) -> int:
        """The number of the stage whose positions are read."""
        return len(self.tower.depths) - 1

    @property
    def grid(self) -> tuple[int, int]:
        """Its positions down and across, which are the places of the memory."""
        return self.tower.grid_of(self.last_stage)

    @property
    def num_words(self) -> int:
        """How many tokens a question and an answer have together."""
        return self.max_target_tokens


class Donut(AskedDecoder):
    """No norm stands between the last stage and the decoder. Where both have another width, a product does."""

    def __init__(self, config: DonutConfig) -> None:
        super().__init__()
        self.config = config
        width = config.tower.width(config.last_stage)
        self.tower = SwinBody(config.tower)
        self.projection = nn.Linear(width, config.d_model) if width != config.d_model else None
        words = Embeddings(config.target_vocab_size, config.max_target_tokens, config.d_model, config.embeddings)
        sizes = (config.d_model, config.num_decoder_heads, config.d_decoder_ff, 0.0, config.style)
        decoder = Decoder(words, config.max_target_tokens, config.num_decoder_layers, *sizes)
        self._write_with(decoder, config.grid[0] * config.grid[1])

    @property
    def unadapted(self) -> str | None:
        """See Writer."""
        return "models whose encoder attends in windows"

    def encode(self, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode (pixel_values [batch, channels, height, width],)."""
        seen = self.tower.encoded(*source)
        everything = torch.ones(1, 1, 1, seen.shape[1], dtype=torch.bool)
        return (seen if self.projection is None else self.projection(seen)), everything

    def forward(self, pixel_values: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits [batch, target, vocab], as Captioner does."""
        return self.decode(target_ids, pixel_values)
