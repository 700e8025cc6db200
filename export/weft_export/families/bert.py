"""Encoder-only Transformer for classifying texts ("BERT", Devlin et al. 2019, section 3)."""

from torch import Tensor, nn

from weft_export.families.bert_body import BertBody, BertConfig
from weft_export.families.classifier import Classifier
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.initial import draw_weights


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
