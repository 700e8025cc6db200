"""Decoder-only Transformer for generation, in the manner of GPT-2 (Radford et al. 2019)."""

from dataclasses import dataclass

from torch import Tensor, nn

from weft_export.attention import SelfAttention
from weft_export.causal import CausalLayer, CausalTransformer
from weft_export.families.sizes import require_divisible, require_fraction, require_positive
from weft_export.feed_forward import FeedForward
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
        self._initialise()

    def embed(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:
        """Return E[token] + P[position]."""
        embedded: Tensor = self.embedding(ids, past_lengths)
        return embedded

    def logits(self, x: Tensor) -> Tensor:
        """Project normed x [..., d_model] to logits [..., vocab] with the embedding itself."""
        return self.embedding.logits(x)

    def _initialise(self) -> None:
        """Draw weights as section 2.3 does: the 2 N projections onto the residual path are smaller by sqrt(2 N)."""
        for name, weight in self.layers.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            elif weight.dim() > 1:
                onto_residual = name.endswith(("attention.output.weight", "feed_forward.outer.weight"))
                nn.init.normal_(weight, std=0.02 * ((2 * len(self.layers)) ** -0.5 if onto_residual else 1))


def _layer(config: GptConfig) -> CausalLayer:
    return CausalLayer(
        nn.LayerNorm(config.d_model, config.norm_eps),
        SelfAttention(config.d_model, config.num_heads),
        nn.LayerNorm(config.d_model, config.norm_eps),
        FeedForward(config.d_model, config.d_ff, activation="gelu_tanh"),
        config.dropout,
    )
