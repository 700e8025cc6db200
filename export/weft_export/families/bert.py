"""Encoder-only Transformer for classifying and tagging texts ("BERT", Devlin et al. 2019, sections 3 and 5.3)."""

from dataclasses import dataclass

from torch import Tensor, nn

from weft_export.families.classifier import Classifier
from weft_export.families.sizes import require_divisible, require_sizes
from weft_export.layers.embeddings import LearnedEmbedding
from weft_export.layers.encoder import Encoder
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.initial import draw_weights
from weft_export.layers.style import Style


@dataclass(frozen=True)
class BertConfig:
    """Sizes; the paper's symbols stand beside them. Lengths are in tokens, [CLS] and [SEP] included."""

    vocab_size: int
    num_labels: int
    max_tokens: int
    d_model: int  # H
    num_heads: int  # A
    d_ff: int  # 4H in the paper
    num_layers: int  # L
    norm_eps: float = 1e-12
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)


class BertBody(nn.Module):
    """LN(E[token] + P[position]) and N post-norm layers, for a single segment.

    The vector of that segment is part of each position's vector. RoBERTa's first two positions are left out, because no
    token ever takes them.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embedding = LearnedEmbedding(config.vocab_size, config.max_tokens, config.d_model)
        self.norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.encoder = Encoder(
            config.num_layers,
            config.d_model,
            config.num_heads,
            config.d_ff,
            config.dropout,
            Style(residual="post", norm_eps=config.norm_eps),
        )

    def forward(self, input_ids: Tensor, lengths: Tensor | None, num_read: int | None = None) -> Tensor:
        """Encode input_ids int64 [batch, seq], right-padded to lengths [batch] or full: [batch, seq, d_model].

        With num_read, only the first num_read positions.
        """
        encoded: Tensor = self.encoder(self.norm(self.embedding(input_ids)), lengths, num_read)
        return encoded

    def attentions(self, input_ids: Tensor) -> list[Tensor]:
        """Return each layer's self-attention [batch, h, seq, seq] over input_ids [batch, seq] without padding."""
        return self.encoder.attentions(self.norm(self.embedding(input_ids)))


class Bert(Classifier):
    """What stands at [CLS], the first token, through the pooler tanh(C W + b), then one linear layer."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.body = BertBody(config)
        self.pooler = nn.Linear(config.d_model, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.d_model, config.num_labels)
        self.attention_heads = (config.num_heads,) * config.num_layers
        draw_weights(self, config.d_model)

    def forward(self, *source: Tensor) -> Tensor:
        """Return logits [batch, labels] for input_ids int64 [batch, seq], right-padded, and lengths [batch]."""
        input_ids, lengths = source
        pooled = self.pooler(self.body(input_ids, lengths, num_read=1)[:, 0]).tanh()
        logits: Tensor = self.head(self.dropout(pooled))
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return the row of [CLS] over the tokens of source[0], input_ids [1, seq]."""
        return over_source(pick_flow(self.body.attentions(source[0]), layer, head)[:1])


class BertTagger(Classifier):
    """BERT's body and one linear layer on every token, without a CRF: labels do not see each other."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.body = BertBody(config)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.d_model, config.num_labels)
        self.attention_heads = (config.num_heads,) * config.num_layers
        draw_weights(self, config.d_model)

    def forward(self, *source: Tensor) -> Tensor:
        """Return logits [batch, seq, labels] for input_ids int64 [batch, seq], right-padded, and lengths [batch]."""
        input_ids, lengths = source
        logits: Tensor = self.head(self.dropout(self.body(input_ids, lengths)))
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return a row for each token of source[0], input_ids [1, seq], over all of them."""
        return over_source(pick_flow(self.body.attentions(source[0]), layer, head))
