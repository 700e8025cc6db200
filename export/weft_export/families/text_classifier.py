"""Transformer encoder for text classification: the encoder of Vaswani et al. 2017 under a mean over its tokens."""

from dataclasses import dataclass

from torch import Tensor, nn

from weft_export.attention import padding_mask
from weft_export.embedding import PositionedEmbedding
from weft_export.encoder import Encoder
from weft_export.families.sizes import require_divisible, require_fraction, require_positive


@dataclass(frozen=True)
class TextClassifierConfig:
    """Sizes; the paper's symbols stand beside them. Lengths are in tokens."""

    vocab_size: int
    num_labels: int
    max_tokens: int
    d_model: int
    num_heads: int  # h
    d_ff: int
    num_layers: int  # N
    dropout: float = 0.0  # P_drop, in training only

    def __post_init__(self) -> None:
        require_positive(**{name: size for name, size in vars(self).items() if name != "dropout"})
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)
        require_divisible("d_model", self.d_model, "2 (sine and cosine)", 2)
        require_fraction("dropout", self.dropout)


class TextClassifier(nn.Module):
    """Sinusoidal positions, pre-norm encoder, mean over the real tokens, one linear layer."""

    def __init__(self, config: TextClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = PositionedEmbedding(config.vocab_size, config.max_tokens, config.d_model)
        self.encoder = Encoder(config.num_layers, config.d_model, config.num_heads, config.d_ff, config.dropout)
        self.head = nn.Linear(config.d_model, config.num_labels)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Return class logits [batch, labels] for input_ids int64 [batch, seq], right-padded to lengths [batch]."""
        mask = padding_mask(lengths, input_ids.shape[1])
        encoded = self.encoder(self.embedding(input_ids), lengths)
        # A product, not a masked sum: ONNX Runtime sums one row in another order than a batch of rows.
        weights = mask[:, 0].to(encoded.dtype) / lengths[:, None, None].to(encoded.dtype)
        mean = (weights @ encoded)[:, 0]
        logits: Tensor = self.head(mean)
        return logits
