"""Transformer encoder-decoder for translation ("Attention Is All You Need", Vaswani et al. 2017)."""

from dataclasses import dataclass

from torch import Tensor

from weft_export.families.sequence_to_sequence import SequenceToSequence
from weft_export.families.sizes import require_among, require_head, require_sizes
from weft_export.layers.attention import padding_mask
from weft_export.layers.decoder import Decoder
from weft_export.layers.embeddings import PositionedEmbedding
from weft_export.layers.encoder import Encoder
from weft_export.layers.style import Style

BASE = {"d_model": 512, "num_heads": 8, "d_ff": 2048, "num_encoder_layers": 6, "num_decoder_layers": 6}
BIG = {"d_model": 1024, "num_heads": 16, "d_ff": 4096, "num_encoder_layers": 6, "num_decoder_layers": 6}
"""The two shapes of the paper's table 3. The paper has norm "post", activation "relu" and one shared embedding."""


@dataclass(frozen=True)
class EncoderDecoderConfig:
    """Sizes and choices; the paper's symbols stand beside them. Lengths are in tokens."""

    source_vocab_size: int
    target_vocab_size: int
    max_source_tokens: int
    max_target_tokens: int
    d_model: int
    num_heads: int  # h
    d_ff: int
    num_encoder_layers: int  # N
    num_decoder_layers: int  # N
    dropout: float = 0.0  # P_drop, in training only
    norm: str = "pre"  # or "post", the paper's: where a sublayer's norm stands
    activation: str = "gelu"  # or "relu", the paper's
    shared_embedding: bool = False  # source, target and output projection are one matrix (section 3.4)

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("norm", self.norm, ("pre", "post"))
        require_among("activation", self.activation, ("gelu", "relu"))
        require_head("d_model / num_heads", self.d_model, self.num_heads, 8)
        if self.shared_embedding and self.source_vocab_size != self.target_vocab_size:
            raise ValueError("a shared_embedding needs source_vocab_size and target_vocab_size to be equal")


class EncoderDecoder(SequenceToSequence):
    """Sinusoidal positions; source and target have embeddings of their own unless the config shares one."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        style = Style(residual=config.norm, activation=config.activation)
        sizes = (config.d_model, config.num_heads, config.d_ff, config.dropout, style)
        longest = config.max_target_tokens
        if config.shared_embedding:
            longest = max(longest, config.max_source_tokens)
        else:
            self.embedding = PositionedEmbedding(config.source_vocab_size, config.max_source_tokens, config.d_model)
        self.encoder = Encoder(config.num_encoder_layers, *sizes)
        words = PositionedEmbedding(config.target_vocab_size, longest, config.d_model)
        decoder = Decoder(words, config.max_target_tokens, config.num_decoder_layers, *sizes)
        self._write_with(decoder, config.max_source_tokens)

    def encode(self, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode (source_ids int64 [batch, source] right-padded, source_lengths [batch])."""
        source_ids, source_lengths = source
        embedding = self.decoder.embedding if self.config.shared_embedding else self.embedding
        mask = padding_mask(source_lengths, source_ids.shape[1])
        return self.encoder(embedding(source_ids), source_lengths), mask

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits [batch, target, vocab].

        source_ids [batch, source] and target_ids [batch, target] are int64, right-padded; source_lengths is [batch].
        Position t of the logits predicts target token t + 1 from target_ids[:, : t + 1]. Causality hides the padding at
        the target's end. A loss only has to leave those positions out.
        """
        return self.decode(target_ids, source_ids, source_lengths)
