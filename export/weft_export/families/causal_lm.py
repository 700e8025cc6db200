"""Decoder-only Transformer for generation, in the manner of Llama (Touvron et al. 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from weft_export.attention import SelfAttention, causal_mask
from weft_export.cached_attention import KeyValue
from weft_export.embedding import last_position
from weft_export.families.sizes import require_divisible, require_fraction, require_positive
from weft_export.feed_forward import SwiGlu
from weft_export.norms import RmsNorm
from weft_export.positions import rotary_tables


@dataclass(frozen=True)
class CausalLmConfig:
    """Sizes. max_tokens is prompt and continuation together."""

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

    def __post_init__(self) -> None:
        floats = ("rope_theta", "norm_eps", "dropout")
        require_positive(**{name: size for name, size in vars(self).items() if name not in floats})
        # The cached attention kernel rotates heads whose size is a multiple of 16.
        require_divisible("d_model", self.d_model, "16 * num_heads", 16 * self.num_heads)
        require_divisible("num_heads", self.num_heads, "num_kv_heads", self.num_kv_heads)
        require_fraction("dropout", self.dropout)
        if self.rope_theta <= 1 or self.norm_eps <= 0:
            raise ValueError("rope_theta must be above 1 and norm_eps above 0")


class CausalLmLayer(nn.Module):
    """x + SelfAttention(RMSNorm(x)), then x + SwiGLU(RMSNorm(x)), without biases."""

    def __init__(self, config: CausalLmConfig) -> None:
        super().__init__()
        self.attention_norm = RmsNorm(config.d_model, config.norm_eps)
        self.attention = SelfAttention(config.d_model, config.num_heads, config.num_kv_heads, bias=False)
        self.feed_forward_norm = RmsNorm(config.d_model, config.norm_eps)
        self.feed_forward = SwiGlu(config.d_model, config.d_ff)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor, rotary: KeyValue) -> Tensor:
        """Map the whole of x [batch, seq, d_model] to the same shape."""
        x = x + self.dropout(self.attention(self.attention_norm(x), mask, rotary))
        out: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return out

    def step(
        self, x: Tensor, past: KeyValue, seqlens_k: Tensor, total_length: Tensor, rotary: KeyValue
    ) -> tuple[Tensor, KeyValue]:
        """Map the next positions x [batch, seq, d_model]; returns them and the present cache."""
        out, present = self.attention.step(self.attention_norm(x), past, seqlens_k, total_length, rotary)
        x = x + out
        return x + self.feed_forward(self.feed_forward_norm(x)), present


class CausalLm(nn.Module):
    """RoPE, RMSNorm, SwiGLU, grouped key and value heads; the embedding is also the output projection."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: CausalLmConfig) -> None:
        super().__init__()
        self.config = config
        head_dim = config.d_model // config.num_heads
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(CausalLmLayer(config) for _ in range(config.num_layers))
        self.norm = RmsNorm(config.d_model, config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        cos, sin = rotary_tables(config.max_tokens, head_dim, config.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.cache_shape = (config.num_kv_heads, config.max_tokens, head_dim)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits [batch, seq, vocab] for input_ids [batch, seq]; padding may only follow a row's tokens."""
        mask = causal_mask(input_ids.shape[1])
        x = self.dropout(self.embedding(input_ids))
        for layer in self.layers:
            x = layer(x, mask, (self.cos, self.sin))
        return functional.linear(self.norm(x), self.embedding.weight)

    def step(
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        lengths: Tensor,
        total_length: Tensor,
        caches: Sequence[KeyValue],
    ) -> tuple[Tensor, list[KeyValue]]:
        """Return logits [batch, vocab] of each row's last real token, and the present caches.

        input_ids is [batch, seq], right-padded; past_lengths and lengths are int32 [batch]; total_length is int32 [1],
        the caches' capacity.
        """
        x = self.embedding(input_ids)
        # Padding counts as written: causality hides it from real tokens, and the next run overwrites it.
        seqlens_k = past_lengths + (input_ids.shape[1] - 1)
        presents = []
        for layer, past in zip(self.layers, caches, strict=True):
            x, present = layer.step(x, past, seqlens_k, total_length, (self.cos, self.sin))
            presents.append(present)
        return functional.linear(self.norm(last_position(x, lengths)), self.embedding.weight), presents
