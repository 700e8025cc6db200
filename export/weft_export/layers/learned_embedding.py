"""Token embeddings with learned positions, as in BERT and GPT."""

import torch
from torch import Tensor, nn

from weft_export.layers.embedding import TokenEmbedding


class LearnedEmbedding(TokenEmbedding):
    """E[token] + P[position] ("Convolutional Sequence to Sequence Learning", Gehring et al. 2017, section 3.1)."""

    def __init__(self, vocab_size: int, max_tokens: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.positions = nn.Embedding(max_tokens, d_model)

    def forward(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:
        """Embed ids [batch, seq]; row b begins at position past_lengths[b], or at 0. Returns [batch, seq, d_model].

        Padding may stand beyond the last position, whose vector it then gets.
        """
        places = torch.arange(ids.shape[1])
        if past_lengths is not None:
            places = past_lengths.long()[:, None] + places
        embedded: Tensor = self.tokens(ids) + self.positions(places.clamp(max=self.positions.num_embeddings - 1))
        return embedded
