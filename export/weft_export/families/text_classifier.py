"""Transformer encoder for text classification: the encoder of Vaswani et al. 2017 under a mean over its tokens."""

from dataclasses import dataclass

from torch import Tensor, nn

from weft_export.families.classifier import Classifier
from weft_export.families.sizes import require_divisible, require_sizes
from weft_export.layers.embeddings import PositionedEmbedding
from weft_export.layers.encoder import Encoder
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.pooling import mean_of_real


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
        require_sizes(self)
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)
        require_divisible("d_model", self.d_model, "2 (sine and cosine)", 2)


class TextClassifier(Classifier):
    """Sinusoidal positions, pre-norm encoder, mean over the real tokens, one linear layer."""

    def __init__(self, config: TextClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = PositionedEmbedding(config.vocab_size, config.max_tokens, config.d_model)
        self.encoder = Encoder(config.num_layers, config.d_model, config.num_heads, config.d_ff, config.dropout)
        self.head = nn.Linear(config.d_model, config.num_labels)
        self.attention_heads = (config.num_heads,) * config.num_layers

    def forward(self, *source: Tensor) -> Tensor:
        """Return class logits [batch, labels] for input_ids int64 [batch, seq], right-padded, and lengths [batch]."""
        input_ids, lengths = source
        encoded = self.encoder(self.embedding(input_ids), lengths)
        logits: Tensor = self.head(mean_of_real(encoded, lengths))
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return the row of the mean over positions, [1, seq]: rolled out, or of one layer."""
        flow = pick_flow(self.encoder.attentions(self.embedding(source[0])), layer, head)
        return over_source(flow.mean(dim=0, keepdim=True))
