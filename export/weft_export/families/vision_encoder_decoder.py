"""Pictures to text: an encoder of ViT's kind, and a decoder in any style: ViT with GPT-2, TrOCR, BLIP.

`captioner` is the simple one of its kind. This one is what checkpoints of others become.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft_export.families.sequence_to_sequence import SequenceToSequence
from weft_export.families.sizes import require_divisible, require_head, require_sizes
from weft_export.layers.decoder import Decoder
from weft_export.layers.embeddings import Embeddings, EmbeddingStyle
from weft_export.layers.encoder import Encoder
from weft_export.layers.patches import PatchEmbedding
from weft_export.layers.style import Style


@dataclass(frozen=True)
class VisionEncoderDecoderConfig:
    """Sizes and choices. Image sizes are in pixels, lengths in tokens.

    num_class_tokens: how many tokens stand before the patches; the memory has them too.
    projected: what the encoder gives is brought to d_model by a linear layer before the decoder sees it.
    """

    target_vocab_size: int
    max_target_tokens: int
    channels: int
    image_height: int
    image_width: int
    patch_size: int
    d_encoder: int
    num_encoder_heads: int
    d_encoder_ff: int
    num_encoder_layers: int
    d_model: int
    num_decoder_heads: int
    d_decoder_ff: int
    num_decoder_layers: int
    num_class_tokens: int = 1
    encoder_style: Style = field(default_factory=Style)
    style: Style = field(default_factory=Style)
    embeddings: EmbeddingStyle = field(default_factory=EmbeddingStyle)
    projected: bool = False
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        require_divisible("d_encoder", self.d_encoder, "num_encoder_heads", self.num_encoder_heads)
        require_head("d_model / num_decoder_heads", self.d_model, self.num_decoder_heads, 8)
        require_divisible("image_height", self.image_height, "patch_size", self.patch_size)
        require_divisible("image_width", self.image_width, "patch_size", self.patch_size)

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.image_height // self.patch_size, self.image_width // self.patch_size

    @property
    def num_positions(self) -> int:
        """Places of the memory."""
        return self.num_class_tokens + self.grid[0] * self.grid[1]


class VisionEncoderDecoder(SequenceToSequence):
    """The memory is the class tokens and one place for each patch, in reading order."""

    def __init__(self, config: VisionEncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.num_class_tokens = config.num_class_tokens
        self.patches = PatchEmbedding(config.channels, config.patch_size, config.d_encoder)
        self.class_tokens = nn.Parameter(torch.zeros(config.num_class_tokens, config.d_encoder))
        self.positions = nn.Parameter(torch.randn(config.num_positions, config.d_encoder) * 0.02)
        encoder_sizes = (config.d_encoder, config.num_encoder_heads, config.d_encoder_ff, config.dropout)
        self.encoder = Encoder(config.num_encoder_layers, *encoder_sizes, config.encoder_style)
        self.projection = nn.Linear(config.d_encoder, config.d_model) if config.projected else None
        words = Embeddings(config.target_vocab_size, config.max_target_tokens, config.d_model, config.embeddings)
        sizes = (config.d_model, config.num_decoder_heads, config.d_decoder_ff, config.dropout, config.style)
        d_memory = None if config.projected else config.d_encoder
        decoder = Decoder(words, config.max_target_tokens, config.num_decoder_layers, *sizes, d_memory=d_memory)
        self._write_with(decoder, config.num_positions)

    def encode(self, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode (pixel_values [batch, channels, height, width],)."""
        (pixel_values,) = source
        patches = self.patches(pixel_values)
        tokens = self.class_tokens[None].expand(patches.shape[0], -1, -1)
        encoded = self.encoder(torch.cat((tokens, patches), dim=1) + self.positions, None)
        everything = torch.ones(1, 1, 1, self.config.num_positions, dtype=torch.bool)
        return (encoded if self.projection is None else self.projection(encoded)), everything

    def forward(self, pixel_values: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits [batch, target, vocab], as Captioner does."""
        return self.decode(target_ids, pixel_values)
