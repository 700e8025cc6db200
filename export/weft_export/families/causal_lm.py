"""Decoder-only Transformer for generation, in the manner of Llama (Touvron et al. 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.attention import SelfAttention, causal_mask
from weft_export.cached_attention import KeyValue
from weft_export.embedding import last_position
from weft_export.explaining import Explanation, over_source, pick_head, pick_layer
from weft_export.families.sizes import require_divisible, require_fraction, require_positive
from weft_export.feed_forward import SwiGlu
from weft_export.norms import RmsNorm
from weft_export.positions import rotary_tables
from weft_export.writer import KV_CACHE, Run, State, Writer, flat, pairs


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

    def weights(self, x: Tensor, mask: Tensor, rotary: KeyValue) -> Tensor:
        """Return the self-attention weights [batch, h, seq, seq] that forward uses."""
        return self.attention.weights(self.attention_norm(x), mask, rotary)

    def step(
        self, x: Tensor, past: KeyValue, seqlens_k: Tensor, total_length: Tensor, rotary: KeyValue
    ) -> tuple[Tensor, KeyValue]:
        """Map the next positions x [batch, seq, d_model]; returns them and the present cache."""
        out, present = self.attention.step(self.attention_norm(x), past, seqlens_k, total_length, rotary)
        x = x + out
        return x + self.feed_forward(self.feed_forward_norm(x)), present


class CausalLm(Writer):
    """RoPE, RMSNorm, SwiGLU, grouped key and value heads; the embedding is also the output projection."""

    # Sampling is the rule here and often from the best 40 or 50; reading a whole row of logits costs more.
    max_candidates = 64
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
        cache_shape = (config.num_kv_heads, config.max_tokens, head_dim)
        names = [f"{layer}.{part}" for layer in range(config.num_layers) for part in ("key", "value")]
        self.states = tuple(State(KV_CACHE, name, cache_shape, 1) for name in names)
        self.attention_heads = (config.num_heads,) * config.num_layers

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits [batch, seq, vocab] for input_ids [batch, seq]; padding may only follow a row's tokens."""
        mask = causal_mask(input_ids.shape[1])
        x = self.dropout(self.embedding(input_ids))
        for layer in self.layers:
            x = layer(x, mask, (self.cos, self.sin))
        return functional.linear(self.norm(x), self.embedding.weight)

    def step(self, run: Run, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return logits [batch, vocab] of each row's last real token, and the present caches."""
        x, presents = self.embedding(run.input_ids), []
        for layer, past in zip(self.layers, pairs(states), strict=True):
            x, present = layer.step(x, past, run.last_index, run.total_length, (self.cos, self.sin))
            presents.append(present)
        logits = functional.linear(self.norm(last_position(x, run.lengths)), self.embedding.weight)
        return logits, list(flat(presents))

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:  # noqa: ARG002 - there is no source
        """Return logits [batch, target, vocab]."""
        return self.forward(target_ids)

    def explain(self, layer: Tensor, head: Tensor, target_ids: Tensor, *source: Tensor) -> Explanation:
        """Return self-attention from the prompt's last token and target_ids to the prompt, source[0] [1, prompt]."""
        prompt = source[0]
        ids = torch.cat((prompt, target_ids), dim=1)
        mask, last = causal_mask(ids.shape[1]), prompt.shape[1] - 1
        x, layers = self.embedding(ids), []
        for block in self.layers:
            weights = block.weights(x, mask, (self.cos, self.sin))
            layers.append(pick_head(weights[0, :, last:, : last + 1], head))
            x = block(x, mask, (self.cos, self.sin))
        return over_source(pick_layer(layers, layer))
