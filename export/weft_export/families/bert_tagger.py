"""Encoder-only Transformer for labelling each token of a text ("BERT", Devlin et al. 2019, section 5.3)."""

from torch import Tensor, nn

from weft_export.families.bert_body import BertBody, BertConfig
from weft_export.families.classifier import Classifier
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.initial import draw_weights


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
