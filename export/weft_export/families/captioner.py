"""A vision encoder in the style of ViT (Dosovitskiy et al. 2021) and the Transformer decoder, for captions."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft_export.families.sequence_to_sequence import AskedDecoder, SequenceToSequence
from weft_export.families.sizes import require_divisible, require_head, require_sizes
from weft_export.layers.decoder import Decoder
from weft_export.layers.embeddings import PositionedEmbedding
from weft_export.layers.encoder import Encoder
from weft_export.layers.patches import PatchEmbedding


@dataclass(frozen=True)
class CaptionerConfig:
    """Sizes; the papers' symbols stand beside them. Lengths are in tokens, image sizes in pixels."""

    target_vocab_size: int
    max_target_tokens: int
    channels: int  # C
    image_height: int  # H
    image_width: int  # W
    patch_size: int  # P
    d_model: int
    num_heads: int  # h
    d_ff: int
    num_encoder_layers: int  # N
    num_decoder_layers: int  # N
    dropout: float = 0.0  # P_drop, in training only
    class_token: bool = False  # whether one stands before the patches, and in the memory

    def __post_init__(self) -> None:
        require_sizes(self)
        require_head("d_model / num_heads", self.d_model, self.num_heads, 8)
        require_divisible("image_height", self.image_height, "patch_size", self.patch_size)
        require_divisible("image_width", self.image_width, "patch_size", self.patch_size)

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.image_height // self.patch_size, self.image_width // self.patch_size

    @property
    def num_class_tokens(self) -> int:
        """How many positions of the memory are no patches."""
        return int(self.class_token)


class Captioner(SequenceToSequence):
    """The memory is one position for each patch, in reading order, with learned positions.

    A class token, if there is one, stands before them, as in ViT.
    """

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.config = config
        sizes = (config.d_model, config.num_heads, config.d_ff, config.dropout)
        side = config.patch_size
        self.num_class_tokens = config.num_class_tokens
        self.num_positions = self.num_class_tokens + config.grid[0] * config.grid[1]
        self.patches = PatchEmbedding(config.channels, side, config.d_model)
        if config.class_token:
            self.class_token = nn.Parameter(torch.zeros(1, 1, config.d_model))
        self.positions = nn.Parameter(torch.randn(self.num_positions, config.d_model) * 0.02)
        self.encoder = Encoder(config.num_encoder_layers, *sizes)
        words = PositionedEmbedding(config.target_vocab_size, config.max_target_tokens, config.d_model)
        decoder = Decoder(words, config.max_target_tokens, config.num_decoder_layers, *sizes)
        self._write_with(decoder, self.num_positions)

    def encode(self, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode (pixel_values [batch, channels, height, width],)."""
        (pixel_values,) = source
        x = self.patches(pixel_values)
        if self.num_class_tokens:
            x = torch.cat((self.class_token.expand(x.shape[0], -1, -1), x), dim=1)
        everything = torch.ones(1, 1, 1, self.num_positions, dtype=torch.bool)
        return self.encoder(x + self.positions, None), everything

    def forward(self, pixel_values: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits [batch, target, vocab].

        pixel_values is [batch, channels, height, width], target_ids int64 [batch, target], right-padded.
        Position t of the logits predicts target token t + 1 from target_ids[:, : t + 1]. Causality hides the padding at
        the target's end. A loss only has to leave those positions out.
        """
        return self.decode(target_ids, pixel_values)


class Answerer(AskedDecoder, Captioner):
    """Each token of a question, and each of the answer's, attends to those before it and to all patches."""
