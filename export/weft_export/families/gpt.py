"""Decoder-only Transformer for generation, in the manner of GPT-2 (Radford et al. 2019)."""

from dataclasses import dataclass

from torch import Tensor, nn

from weft_export.attention import SelfAttention
from weft_export.causal import CausalLayer, CausalTransformer
from weft_export.families.sizes import require_divisible, require_fraction, require_positive
from weft_export.feed_forward import FeedForward
from weft_export.initial import draw_weights
from weft_export.learned_embedding import LearnedEmbedding


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
        floats = ("norm_eps", "dropout")
        require_positive(**{name: size for name, size in vars(self).items() if name not in floats})
        # The cached attention kernel works on heads whose size is a multiple of 8.
        require_divisible("d_model", self.d_model, "8 * num_heads", 8 * self.num_heads)
        require_fraction("dropout", self.dropout)
        if self.norm_eps <= 0:
            raise ValueError("norm_eps must be above 0")


class Gpt(CausalTransformer):
    """Learned positions, LayerNorm before each sublayer, GELU by tanh, biases; the embedding is also the projection."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = LearnedEmbedding(config.vocab_size, config.max_tokens, config.d_model)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.declare(config.num_heads, config.num_heads, config.max_tokens, config.d_model // config.num_heads)
        draw_weights(self, config.d_model)
        for layer in self.layers:
            for onto_residual in (layer.attention.output, layer.feed_forward.outer):
                # Section 2.3: so that 2 N sums later the residual path is as large as at any depth.
                onto_residual.weight.data.mul_((2 * config.num_layers) ** -0.5)

    def embed(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:
        """Return E[token] + P[position]."""
        embedded: Tensor = self.embedding(ids, past_lengths)
        return embedded

    def logits(self, x: Tensor) -> Tensor:
        """Project normed x [..., d_model] to logits [..., vocab] with the embedding itself."""
        return self.embedding.logits(x)


def _layer(config: GptConfig) -> CausalLayer:
    return CausalLayer(
        nn.LayerNorm(config.d_model, config.norm_eps),
        SelfAttention(config.d_model, config.num_heads),
        nn.LayerNorm(config.d_model, config.norm_eps),
        FeedForward(config.d_model, config.d_ff, activation="gelu_tanh"),
        config.dropout,
    )
