"""A text to a vector: a decoder's body, read at the text's last token ("Qwen3 Embedding", Zhang et al. 2025)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from weft_export.families.decoder_only import DecoderOnly, DecoderOnlyConfig
from weft_export.families.sizes import require_among, require_sizes
from weft_export.families.text_embedder import Dense, Embedder, pooled, width_of
from weft_export.layers.attention import padding_mask
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.pooling import LAST, POOLINGS


@dataclass(frozen=True, kw_only=True)
class DecoderEmbedderConfig:
    """A body, whose words are never written, and what makes one vector of it; see TextEmbedderConfig.

    causal: no token sees those behind it. Otherwise each sees all, as in an encoder ("LLM2Vec", BehnamGhader et al.
        2024).
    """

    body: DecoderOnlyConfig
    pooling: str = LAST
    dense: tuple[Dense, ...] = ()
    normalized: bool = True
    cut: int | None = None
    causal: bool = True

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("pooling", self.pooling, POOLINGS)
        if not self.body.embeddings.tied or self.body.embeddings.bias:
            raise ValueError("model.body.embeddings has a projection or a bias of its own, which no vector is made of")
        if not self.causal and any(self.body.windows):
            raise ValueError("model.causal is false, and model.body.windows are for layers that look back")

    @property
    def vocab_size(self) -> int:
        """Of the body."""
        return self.body.vocab_size

    @property
    def max_tokens(self) -> int:
        """Of the body."""
        return self.body.max_tokens

    @property
    def num_layers(self) -> int:
        """Of the body."""
        return self.body.num_layers

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return width_of(self, self.body.d_model)


class DecoderEmbedder(Embedder):
    """Turns a text into a vector. Where no token sees those behind it, the last one is what has read all."""

    def __init__(self, config: DecoderEmbedderConfig) -> None:
        super().__init__(config, config.body.d_model)
        self.body = DecoderOnly(config.body)
        self.attention_heads = self.body.attention_heads

    def forward(self, *source: Tensor) -> Tensor:
        """Return vectors [batch, dimensions] for input_ids int64 [batch, seq], right-padded, and lengths [batch]."""
        input_ids, lengths = source
        mask = None if self.config.causal else padding_mask(lengths, input_ids.shape[1])
        return self.ended(pooled(self.body.encoded(input_ids, mask), lengths, self.config.pooling))

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return the row that is pooled, over the tokens of source[0], input_ids [1, seq]: of several, their mean."""
        mask = None if self.config.causal else torch.ones(1, 1, 1, 1, dtype=torch.bool)
        flow = pick_flow(self.body.attentions(source[0], mask), layer, head)
        return over_source(self.read(flow))
