"""Decoder-only Transformer for generation, in the manner of GPT-2 (Radford et al. 2019)."""

from dataclasses import dataclass

from torch import Tensor

from weft_export.families.causal import CausalTransformer
from weft_export.families.sizes import require_head, require_sizes
from weft_export.layers.embeddings import LearnedEmbedding
from weft_export.layers.initial import draw_weights
from weft_export.layers.style import Style


@dataclass(frozen=True)
class GptConfig:
    """Sizes. max_tokens is prompt and continuation together."""

    vocab_size: int
    max_tokens: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    norm_eps: float = 1e-5
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        require_head("d_model / num_heads", self.d_model, self.num_heads, 8)


class Gpt(CausalTransformer):
    """Learned positions, LayerNorm before each sublayer, GELU by tanh, biases; the embedding is also the projection."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__(
            config.num_layers,
            config.d_model,
            config.num_heads,
            config.num_heads,
            config.d_ff,
            config.dropout,
            Style(activation="gelu_tanh", norm_eps=config.norm_eps),
            max_tokens=config.max_tokens,
        )
        self.config = config
        self.embedding = LearnedEmbedding(config.vocab_size, config.max_tokens, config.d_model)
        draw_weights(self, config.d_model)
        for layer in self.layers:
            for onto_residual in (layer.attention.output, layer.feed_forward.down_proj):
                # Section 2.3: so that 2 N sums later the residual path is as large as at any depth.
                onto_residual.weight.data.mul_((2 * config.num_layers) ** -0.5)

    def embed(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:
        """Return E[token] + P[position]."""
        embedded: Tensor = self.embedding(ids, past_lengths)
        return embedded

    def logits(self, x: Tensor) -> Tensor:
        """Project normed x [..., d_model] to logits [..., vocab] with the embedding itself."""
        return self.embedding.logits(x)
