"""Recurrent text classifier with attention over its words ("Hierarchical Attention Networks ...", Yang et al. 2016).

One level of the paper's two: words to a text, without sentences in between.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft_export.families.classifier import Classifier
from weft_export.families.sizes import require_among, require_sizes
from weft_export.layers.additive_attention import mask_of
from weft_export.layers.explaining import Explanation, over_source, pick_head, pick_layer
from weft_export.layers.recurrent import CELLS, Recurrence


@dataclass(frozen=True)
class RnnClassifierConfig:
    """Sizes; the paper's symbols stand beside them. Lengths are in tokens."""

    vocab_size: int
    num_labels: int
    max_tokens: int  # T
    cell: str
    d_embedding: int
    d_hidden: int  # of each direction
    d_attention: int  # of u_it

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("cell", self.cell, CELLS)


class RnnClassifier(Classifier):
    """h_t both ways, u_t = tanh(W_w h_t + b_w), alpha = softmax(u_t u_w), v = sum_t alpha_t h_t (eqs. 5 to 7)."""

    summarises = False

    def __init__(self, config: RnnClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_embedding)
        self.encoder = Recurrence(config.cell, config.d_embedding, config.d_hidden, bidirectional=True)
        self.hidden = nn.Linear(2 * config.d_hidden, config.d_attention)  # W_w, b_w
        self.context = nn.Linear(config.d_attention, 1, bias=False)  # u_w
        self.head = nn.Linear(2 * config.d_hidden, config.num_labels)
        self.attention_heads = (1,)

    def forward(self, *source: Tensor) -> Tensor:
        """Return class logits [batch, labels] for input_ids int64 [batch, seq], right-padded, and lengths [batch]."""
        annotations, weights = self._read(*source)
        logits: Tensor = self.head((weights[:, None] @ annotations)[:, 0])
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return alpha, [1, seq]; there is one layer with one head."""
        _, weights = self._read(*source)
        return over_source(pick_layer([pick_head(weights[None], head)], layer))

    def _read(self, input_ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return h [batch, seq, 2 d_hidden] and alpha [batch, seq]."""
        annotations, _ = self.encoder.encode(self.embedding(input_ids), lengths)
        energies = self.context(self.hidden(annotations).tanh()).squeeze(-1)
        hidden = torch.finfo(energies.dtype).min
        return annotations, torch.where(mask_of(lengths, input_ids.shape[1]), energies, hidden).softmax(dim=-1)
