"""The encoder-decoder of BART (Lewis et al. 2020), and of its kin: Marian, mBART, M2M-100 and NLLB, Pegasus.

They differ in where the norms stand, in what a position is, and in what belongs to the words: see Style and
EmbeddingStyle.
"""

from dataclasses import dataclass, field, replace

from torch import Tensor

from weft_export.families.sequence_to_sequence import SequenceToSequence
from weft_export.families.sizes import LENGTH, require_divisible, require_each_layer, require_head, require_sizes
from weft_export.layers.attention import padding_mask
from weft_export.layers.decoder import Decoder
from weft_export.layers.embeddings import Embeddings, EmbeddingStyle
from weft_export.layers.encoder import Encoder
from weft_export.layers.style import Style
from weft_export.layers.windowed_attention import WindowedAttention


@dataclass(frozen=True)
class BartConfig:
    """Sizes and choices. Lengths are in tokens. Encoder and decoder have one width and one style.

    windows: how many tokens each layer of the encoder sees on either side of one, beside the first token. Empty: all.
    embeddings: of both sides; the logits' part of it is the decoder's.
    """

    source_vocab_size: int
    target_vocab_size: int
    max_source_tokens: int
    max_target_tokens: int
    d_model: int
    num_encoder_heads: int
    num_decoder_heads: int
    d_encoder_ff: int
    d_decoder_ff: int
    num_encoder_layers: int
    num_decoder_layers: int
    windows: tuple[int, ...] = ()
    style: Style = field(default_factory=Style)
    embeddings: EmbeddingStyle = field(default_factory=EmbeddingStyle)
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        require_divisible("d_model", self.d_model, "num_encoder_heads", self.num_encoder_heads)
        require_each_layer("windows", self.windows, self.num_encoder_layers, 1, LENGTH)
        require_head("d_model / num_decoder_heads", self.d_model, self.num_decoder_heads, 8)

    @property
    def num_places(self) -> int:
        """How many places stand before the text of a source, of a model that reads pictures too."""
        return 0


class Bart(SequenceToSequence):
    """Each side has words of its own. Where a checkpoint shares them, both hold the same memory."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        self.config = config
        width = config.d_model
        read = replace(config.embeddings, transform=None, tied=True, bias=False, softcap=None)
        longest_source = config.num_places + config.max_source_tokens
        self.embeddings = Embeddings(config.source_vocab_size, longest_source, width, read)
        encoder_sizes = (width, config.num_encoder_heads, config.d_encoder_ff, config.dropout, config.style)
        self.encoder = Encoder(config.num_encoder_layers, *encoder_sizes)
        for layer, window in zip(self.encoder.layers, config.windows, strict=False):
            reach = window if window < config.max_source_tokens - 1 else None
            attention = (width, config.num_encoder_heads, reach)
            layer.attention = WindowedAttention(*attention, **config.style.self_attention)
            self.blocks_of = max(self.blocks_of, reach or 0)
        words = Embeddings(config.target_vocab_size, config.max_target_tokens, width, config.embeddings)
        decoder_sizes = (width, config.num_decoder_heads, config.d_decoder_ff, config.dropout, config.style)
        decoder = Decoder(words, config.max_target_tokens, config.num_decoder_layers, *decoder_sizes)
        self._write_with(decoder, longest_source)

    @property
    def unadapted(self) -> str | None:
        """See Writer."""
        return "models whose encoder attends in windows" if self.config.windows else None

    def encode(self, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode (source_ids int64 [batch, source] right-padded, source_lengths [batch])."""
        source_ids, source_lengths = source
        mask = padding_mask(source_lengths, source_ids.shape[1])
        return self.encoder(self.embeddings(source_ids), source_lengths), mask

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits [batch, target, vocab], as EncoderDecoder does."""
        return self.decode(target_ids, source_ids, source_lengths)
