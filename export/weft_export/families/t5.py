"""Text-to-text Transformer: one model for many tasks. How the text begins tells it which one is wanted.

"Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer" (Raffel et al. 2020), with the gated
GELU of its version 1.1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft_export.families.sequence_to_sequence import SequenceToSequence
from weft_export.families.sizes import require_divisible, require_head, require_sizes
from weft_export.layers.attention import padding_mask
from weft_export.layers.decoder import Decoder
from weft_export.layers.embeddings import TokenEmbedding
from weft_export.layers.encoder import Encoder
from weft_export.layers.score_bias import RelativeBias
from weft_export.layers.style import Style


@dataclass(frozen=True)
class T5Config:
    """Sizes; the paper's symbols stand beside them. Lengths are in tokens; source and target share one vocabulary."""

    vocab_size: int
    max_source_tokens: int
    max_target_tokens: int
    d_model: int
    num_heads: int
    head_dim: int  # d_kv; num_heads of them need not make d_model
    d_ff: int
    num_encoder_layers: int
    num_decoder_layers: int
    num_buckets: int = 32  # of the relative bias
    max_distance: int = 128  # from where on all offsets share a bucket
    tied_projection: bool = False  # the output projection is the embedding (version 1.0)
    scaled_projection: bool | None = None  # after scaling by 1 / sqrt(d_model); None: where it is the embedding
    gated: bool = True  # False in version 1.0
    layers_share_bias: bool = True  # False in UMT5
    activation: str = "gelu_tanh"  # "relu" in version 1.0
    norm_eps: float = 1e-6
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        require_head("head_dim", self.head_dim, 1, 8)
        require_divisible("num_buckets", self.num_buckets, "2 (behind and ahead) * 2 (exact and wide)", 4)
        if self.max_distance <= self.num_buckets // 2:
            raise ValueError("max_distance must be above num_buckets / 2, which have a distance each")

    @property
    def source_vocab_size(self) -> int:
        """The one vocabulary."""
        return self.vocab_size

    @property
    def target_vocab_size(self) -> int:
        """The one vocabulary."""
        return self.vocab_size

    @property
    def num_places(self) -> int:
        """How many places stand before the text of a source, of a model that reads pictures too."""
        return 0


class T5Embedding(TokenEmbedding):
    """E[token], and the output projection: a matrix of its own, or E. x may be scaled by 1 / sqrt(d_model) first."""

    def __init__(self, vocab_size: int, d_model: int, *, tied: bool, scaled: bool) -> None:
        super().__init__(vocab_size, d_model)
        self.projection = None if tied else nn.Linear(d_model, vocab_size, bias=False)
        self.scale = d_model**-0.5 if scaled else None

    def logits(self, x: Tensor) -> Tensor:
        """Project x [..., d_model] to logits [..., vocab]."""
        if self.scale is not None:
            x = x * self.scale
        if self.projection is None:
            return super().logits(x)
        logits: Tensor = self.projection(x)
        return logits


class T5(SequenceToSequence):
    """RMSNorm before each sublayer, no biases, scores Q K^T + b[offset] without 1 / sqrt(d_k), gated GELU.

    Encoder and decoder each have one relative bias for all layers, or one for each layer; cross-attention has none. One
    embedding serves both.
    """

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = config
        style = Style(
            rms_norm=True,
            norm_eps=config.norm_eps,
            activation=config.activation,
            gated=config.gated,
            bias=False,
            scale=1.0,
            head_dim=config.head_dim,
        )
        sizes = (config.d_model, config.num_heads, config.d_ff, config.dropout, style)
        buckets = (config.num_buckets, config.max_distance)
        # A batch is padded to a multiple of 8, which may lie beyond max_source_tokens.
        longest_source = config.num_places + -(-config.max_source_tokens // 8) * 8
        tables = [1, 1] if config.layers_share_bias else [config.num_encoder_layers, config.num_decoder_layers]
        both_ways = RelativeBias(config.num_heads, longest_source, *buckets, bidirectional=True, num_tables=tables[0])
        backwards = RelativeBias(
            config.num_heads, config.max_target_tokens, *buckets, bidirectional=False, num_tables=tables[1]
        )
        tied = config.tied_projection
        scaled = tied if config.scaled_projection is None else config.scaled_projection
        embedding = T5Embedding(config.vocab_size, config.d_model, tied=tied, scaled=scaled)
        self.encoder = Encoder(config.num_encoder_layers, *sizes, relative_bias=both_ways)
        decoder = Decoder(
            embedding, config.max_target_tokens, config.num_decoder_layers, *sizes, relative_bias=backwards
        )
        self._write_with(decoder, config.num_places + config.max_source_tokens)
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """Draw queries smaller by sqrt(d_k), which stands in for the division of scores, and faint biases."""
        width = self.config.num_heads * self.config.head_dim
        scale = self.config.head_dim**-0.5
        for name, weight in self.named_parameters():
            if name.endswith("attention.qkv.weight"):
                weight[:width].mul_(scale)
            elif name.endswith("cross_attention.query.weight"):
                weight.mul_(scale)
            elif name.endswith("relative_bias.buckets.weight"):
                weight.mul_(self.config.d_model**-0.5)

    def encode(self, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode (source_ids int64 [batch, source] right-padded, source_lengths [batch])."""
        source_ids, source_lengths = source
        mask = padding_mask(source_lengths, source_ids.shape[1])
        return self.encoder(self.decoder.embedding(source_ids), source_lengths), mask

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits [batch, target, vocab], as EncoderDecoder does."""
        return self.decode(target_ids, source_ids, source_lengths)
