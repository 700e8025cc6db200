"""RNN encoder-decoder with attention ("Neural Machine Translation by Jointly Learning to Align and Translate").

Bahdanau et al. 2015: a bidirectional GRU reads, a GRU writes, and each word looks for its own place in the source.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft_export.families.attentive_rnn import AttentiveRnn
from weft_export.families.sizes import require_sizes
from weft_export.layers.additive_attention import AdditiveAttention
from weft_export.layers.recurrent import Hidden, Recurrence


@dataclass(frozen=True)
class AttentionRnnConfig:
    """Sizes; the paper's symbols stand beside them. Lengths are in tokens."""

    source_vocab_size: int  # K_x
    target_vocab_size: int  # K_y
    max_source_tokens: int
    max_target_tokens: int
    d_embedding: int  # m
    d_hidden: int  # n, of the decoder and of each direction of the encoder
    d_attention: int  # n'
    d_maxout: int  # l

    def __post_init__(self) -> None:
        require_sizes(self)


class AttentionRnn(AttentiveRnn):
    """Section 3 of the paper. A maxout layer predicts the word (A.2.2), here from s_i as in eq. 4.

    States: the annotations h_j and U_a h_j of the source, and s.
    """

    def __init__(self, config: AttentionRnnConfig) -> None:
        super().__init__()
        self.config = config
        d_annotation = 2 * config.d_hidden
        self.source_embedding = nn.Embedding(config.source_vocab_size, config.d_embedding)
        self.encoder = Recurrence("gru", config.d_embedding, config.d_hidden, bidirectional=True)
        self.first = nn.Linear(config.d_hidden, config.d_hidden)  # W_s
        self.embedding = nn.Embedding(config.target_vocab_size, config.d_embedding)  # E
        self.attention = AdditiveAttention(config.d_hidden, d_annotation, config.d_attention)
        self.recurrence = Recurrence("gru", config.d_embedding + d_annotation, config.d_hidden)
        d_output = config.d_hidden + config.d_embedding + d_annotation
        self.maxout = nn.Linear(d_output, 2 * config.d_maxout)  # U_o, V_o, C_o
        self.output = nn.Linear(config.d_maxout, config.target_vocab_size)  # W_o
        self._remember(config.max_source_tokens, d_annotation, config.d_attention)

    def annotate(self, *source: Tensor) -> tuple[Tensor, Tensor, Hidden]:
        """Read (source_ids int64 [batch, source] right-padded, lengths int32 [batch]) both ways.

        s_0 = tanh(W_s of the backward state at the first word) (A.2.2).
        """
        source_ids, lengths = source
        annotations, (last,) = self.encoder.encode(self.source_embedding(source_ids), lengths)
        return annotations, lengths, (self.first(last[1]).tanh(),)

    def predict(self, word: Tensor, state: Tensor, context: Tensor) -> Tensor:
        """Return W_o t_i, where t_i is the larger of each two of t~_i = U_o s_i + V_o E y_{i-1} + C_o c_i."""
        pairs = self.maxout(torch.cat((state, word, context), dim=-1))
        one, other = pairs.chunk(2, dim=-1)
        logits: Tensor = self.output(torch.maximum(one, other))
        return logits
