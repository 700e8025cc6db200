"""Speech to text in Whisper's shape (Radford et al. 2022): two convolutions, a Transformer encoder and decoder."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft_export.families.sequence_to_sequence import SequenceToSequence
from weft_export.families.sizes import require_divisible, require_head, require_sizes
from weft_export.layers.decoder import Decoder
from weft_export.layers.embeddings import Embeddings, EmbeddingStyle
from weft_export.layers.encoder import Encoder
from weft_export.layers.style import Style

# The second convolution halves the frames.
STRIDE = 2


@dataclass(frozen=True)
class SpeechConfig:
    """Sizes and choices. Lengths of answers are in tokens, those of a window in frames."""

    target_vocab_size: int
    max_target_tokens: int
    num_mels: int
    num_frames: int
    d_model: int
    num_encoder_heads: int
    d_encoder_ff: int
    num_encoder_layers: int
    num_decoder_heads: int
    d_decoder_ff: int
    num_decoder_layers: int
    encoder_style: Style = field(default_factory=Style)
    style: Style = field(default_factory=Style)
    embeddings: EmbeddingStyle = field(default_factory=EmbeddingStyle)
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        require_divisible("d_model", self.d_model, "num_encoder_heads", self.num_encoder_heads)
        require_head("d_model / num_decoder_heads", self.d_model, self.num_decoder_heads, 8)
        require_divisible("num_frames", self.num_frames, "the stride of the convolutions", STRIDE)

    @property
    def num_positions(self) -> int:
        """Places of the memory."""
        return self.num_frames // STRIDE


class Speech(SequenceToSequence):
    """The memory is one place for each two frames of a window. Where it is silent, there are places all the same."""

    def __init__(self, config: SpeechConfig) -> None:
        super().__init__()
        self.config = config
        width = config.d_model
        self.first = nn.Conv1d(config.num_mels, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=STRIDE, padding=1)
        self.positions = nn.Parameter(half_and_half(config.num_positions, width))
        encoder_sizes = (width, config.num_encoder_heads, config.d_encoder_ff, config.dropout)
        self.encoder = Encoder(config.num_encoder_layers, *encoder_sizes, config.encoder_style)
        words = Embeddings(config.target_vocab_size, config.max_target_tokens, width, config.embeddings)
        sizes = (width, config.num_decoder_heads, config.d_decoder_ff, config.dropout, config.style)
        decoder = Decoder(words, config.max_target_tokens, config.num_decoder_layers, *sizes)
        self._write_with(decoder, config.num_positions)

    def encode(self, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode (input_features [batch, mels, frames],)."""
        (features,) = source
        halved = nn.functional.gelu(self.second(nn.functional.gelu(self.first(features.to(self.first.weight.dtype)))))
        everything = torch.ones(1, 1, 1, self.config.num_positions, dtype=torch.bool)
        return self.encoder(halved.transpose(1, 2) + self.positions, None), everything

    def forward(self, input_features: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits [batch, target, vocab], as Captioner does."""
        return self.decode(target_ids, input_features)


def half_and_half(num_positions: int, width: int) -> Tensor:
    """Return sinusoids [num_positions, width]: the sines first, then the cosines, as Whisper has them."""
    half = width // 2
    rates = torch.exp(torch.arange(half) * (-torch.log(torch.tensor(10000.0)) / max(1, half - 1)))
    angles = torch.arange(num_positions)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)
