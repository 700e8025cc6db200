"""Samples to text in Moonshine's shape (Jeffries et al. 2024): three convolutions, then heads that are turned."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.families.ctc import samples_of_one
from weft_export.families.sequence_to_sequence import SequenceToSequence
from weft_export.families.sizes import require_head, require_sizes
from weft_export.layers.decoder import Decoder
from weft_export.layers.embeddings import Embeddings, EmbeddingStyle
from weft_export.layers.encoder import Encoder
from weft_export.layers.positions import Rope
from weft_export.layers.reach import ALL, Reach
from weft_export.layers.style import Style

KERNELS, STRIDES = (127, 7, 3), (64, 3, 2)
"""Of the convolutions over the sound."""
_ROTATED = 16


@dataclass(frozen=True, kw_only=True)
class WaveformSpeechConfig:
    """Sizes and choices. Lengths of answers are in tokens, those of a window in places of the memory.

    rotation: how heads of both sides are turned.
    encoder_style, style: of the encoder, and of the decoder; head_dim and scale are theirs.
    """

    target_vocab_size: int
    max_target_tokens: int
    num_frames: int
    d_model: int
    num_heads: int
    d_encoder_ff: int
    num_encoder_layers: int
    d_decoder_ff: int
    num_decoder_layers: int
    rotation: Rope
    encoder_style: Style = field(default_factory=Style)
    style: Style = field(default_factory=Style)
    embeddings: EmbeddingStyle = field(default_factory=EmbeddingStyle)
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        for style in (self.encoder_style, self.style):
            if style.head_dim is None:
                require_head("d_model / num_heads", self.d_model, self.num_heads, _ROTATED)
            else:
                require_head("style.head_dim", style.head_dim, 1, _ROTATED)
            head_dim = style.head_dim or self.d_model // self.num_heads
            if 2 * len(self.rotation.frequencies) != head_dim:
                raise ValueError(f"rotation.frequencies must have {head_dim // 2} numbers, half of a head")

    @property
    def num_positions(self) -> int:
        """Places of the memory of a whole window, at most."""
        return self.num_frames

    @property
    def hop_size(self) -> int:
        """How far apart two places are, in samples."""
        return math.prod(STRIDES)

    @property
    def min_samples(self) -> int:
        """How many samples the first place is made of."""
        return samples_of_one(KERNELS, STRIDES)


class WaveformSpeech(SequenceToSequence):
    """The memory has as many places as the recording has samples for. A row has no padding: it is normed as a whole."""

    def __init__(self, config: WaveformSpeechConfig) -> None:
        super().__init__()
        self.config = config
        width = config.d_model
        first, second, third = zip((1, width, 2 * width), (width, 2 * width, width), KERNELS, STRIDES, strict=True)
        self.first = nn.Conv1d(*first, bias=False)
        self.norm = nn.GroupNorm(1, width)
        self.second = nn.Conv1d(*second)
        self.third = nn.Conv1d(*third)
        layers = config.num_encoder_layers
        reach = Reach(config.num_positions, [ALL] * layers, [config.rotation], [0] * layers)
        encoder_sizes = (width, config.num_heads, config.d_encoder_ff, config.dropout, config.encoder_style)
        self.encoder = Encoder(layers, *encoder_sizes, reach=reach)
        words = Embeddings(config.target_vocab_size, config.max_target_tokens, width, config.embeddings)
        sizes = (width, config.num_heads, config.d_decoder_ff, config.dropout, config.style)
        longest = config.max_target_tokens
        decoder = Decoder(words, longest, config.num_decoder_layers, *sizes, rotation=config.rotation)
        self._write_with(decoder, config.num_positions)

    @property
    def unadapted(self) -> str | None:
        """See Writer."""
        return "models that hear samples as they are"

    def encode(self, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode (waveform [batch, samples],)."""
        (waveform,) = source
        x = self.norm(self.first(waveform[:, None].to(self.first.weight.dtype)).tanh())
        x = functional.gelu(self.third(functional.gelu(self.second(x))))
        return self.encoder(x.transpose(1, 2), None), torch.ones(1, 1, 1, 1, dtype=torch.bool)

    def forward(self, waveform: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits [batch, target, vocab], as Captioner does."""
        return self.decode(target_ids, waveform)
