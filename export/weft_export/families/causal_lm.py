"""Decoder-only Transformer for generation, in the manner of Llama (Touvron et al. 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from weft_export.families.causal import CausalTransformer
from weft_export.families.sizes import require_divisible, require_head, require_sizes
from weft_export.layers.cached_attention import KeyValue
from weft_export.layers.embeddings import TiedEmbedding
from weft_export.layers.positions import rotary_tables
from weft_export.layers.style import Style


@dataclass(frozen=True)
class CausalLmConfig:
    """Sizes. max_tokens is prompt and continuation together.

    sliding_window is how many positions a token attends to in each layer, its own included ("Mistral 7B", Jiang et al.
    2023, section 2); None for all that came before. The cache keeps them all.
    """

    vocab_size: int
    max_tokens: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    d_ff: int
    num_layers: int
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    dropout: float = 0.0  # in training only
    sliding_window: int | None = None

    def __post_init__(self) -> None:
        require_sizes(self)
        require_head("d_model / num_heads", self.d_model, self.num_heads, 16)
        require_divisible("num_heads", self.num_heads, "num_kv_heads", self.num_kv_heads)


class CausalLm(CausalTransformer):
    """RoPE, RMSNorm, SwiGLU, grouped key and value heads, no biases; the embedding is also the output projection."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: CausalLmConfig) -> None:
        super().__init__(
            config.num_layers,
            config.d_model,
            config.num_heads,
            config.num_kv_heads,
            config.d_ff,
            config.dropout,
            Style(rms_norm=True, norm_eps=config.norm_eps, activation="silu", gated=True, bias=False),
            max_tokens=config.max_tokens,
            windows=(config.sliding_window,) * config.num_layers,
        )
        self.config = config
        self.embedding = TiedEmbedding(config.vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        head_dim = config.d_model // config.num_heads
        # A graph is traced with more tokens than the shortest model takes.
        cos, sin = rotary_tables(-(-config.max_tokens // 8) * 8, head_dim, config.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @property
    def rotary(self) -> Sequence[KeyValue]:
        """See CausalTransformer; all layers have the same."""
        return ((self.cos, self.sin),) * len(self.layers)

    def embed(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:  # noqa: ARG002 - positions are rotated in
        """Return E[token]."""
        embedded: Tensor = self.embedding(ids)
        return embedded

    def logits(self, x: Tensor) -> Tensor:
        """Project normed x [..., d_model] to logits [..., vocab] with the embedding itself."""
        logits: Tensor = self.embedding.logits(x)
        return logits
