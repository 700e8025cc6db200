"""The Transformer decoder with cross-attention, pre-norm: it writes translations and captions."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from weft_export.attention import CrossAttention, SelfAttention, causal_mask
from weft_export.cached_attention import KeyValue
from weft_export.embedding import PositionedEmbedding, last_position
from weft_export.feed_forward import FeedForward
from weft_export.writer import Run


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward, each x + Sublayer(LN(x))."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.self_attention_norm = nn.LayerNorm(d_model)
        self.self_attention = SelfAttention(d_model, num_heads)
        self.cross_attention_norm = nn.LayerNorm(d_model)
        self.cross_attention = CrossAttention(d_model, num_heads)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, causal: Tensor, memory: KeyValue, memory_mask: Tensor) -> Tensor:
        """Map the whole target x [batch, target, d_model] to the same shape, teacher-forced."""
        x = x + self.dropout(self.self_attention(self.self_attention_norm(x), causal))
        x = x + self.dropout(self.cross_attention(self.cross_attention_norm(x), memory, memory_mask))
        out: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return out

    def step(
        self,
        x: Tensor,
        past: KeyValue,
        seqlens_k: Tensor,
        total_length: Tensor,
        memory: KeyValue,
        memory_lengths: Tensor,
    ) -> tuple[Tensor, KeyValue, KeyValue]:
        """Map the next positions x [batch, seq, d_model]; returns them, the present cache and the memory."""
        out, present = self.self_attention.step(self.self_attention_norm(x), past, seqlens_k, total_length)
        x = x + out
        out, memory = self.cross_attention.step(self.cross_attention_norm(x), memory, memory_lengths)
        x = x + out
        return x + self.feed_forward(self.feed_forward_norm(x)), present, memory

    def weights(self, x: Tensor, causal: Tensor, memory: KeyValue, memory_mask: Tensor) -> Tensor:
        """Return the cross-attention weights [batch, h, target, source] that forward uses."""
        x = x + self.self_attention(self.self_attention_norm(x), causal)
        return self.cross_attention.weights(self.cross_attention_norm(x), memory, memory_mask)


class Decoder(nn.Module):
    """N decoder layers over target tokens; the embedding is also the output projection (Press and Wolf 2017)."""

    def __init__(
        self, vocab_size: int, max_tokens: int, num_layers: int, d_model: int, num_heads: int, d_ff: int, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = PositionedEmbedding(vocab_size, max_tokens, d_model)
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(DecoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers))
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.cache_shape = (num_heads, max_tokens, d_model // num_heads)

    def project(self, encoded: Tensor) -> list[KeyValue]:
        """Project encoded [batch, source, d_model] to each layer's memory."""
        return [layer.cross_attention.project(encoded) for layer in self.layers]

    def forward(self, target_ids: Tensor, memories: Sequence[KeyValue], memory_mask: Tensor) -> Tensor:
        """Return logits [batch, target, vocab] for target_ids [batch, target], each position seeing those before it."""
        causal = causal_mask(target_ids.shape[1])
        x = self.dropout(self.embedding(target_ids))
        for layer, memory in zip(self.layers, memories, strict=True):
            x = layer(x, causal, memory, memory_mask)
        return self.embedding.logits(self.norm(x))

    def step(
        self, run: Run, caches: Sequence[KeyValue], memories: Sequence[KeyValue]
    ) -> tuple[Tensor, list[KeyValue], list[KeyValue]]:
        """Return logits [batch, vocab] of each row's last real token, the present caches and the memories."""
        assert run.memory_lengths is not None
        x = self.embedding(run.input_ids, run.past_lengths)
        presents, kept = [], []
        for layer, past, memory in zip(self.layers, caches, memories, strict=True):
            x, present, same = layer.step(x, past, run.last_index, run.total_length, memory, run.memory_lengths)
            presents.append(present)
            kept.append(same)
        return self.embedding.logits(self.norm(last_position(x, run.lengths))), presents, kept

    def attentions(self, target_ids: Tensor, memories: Sequence[KeyValue], memory_mask: Tensor) -> list[Tensor]:
        """Return each layer's cross-attention weights [batch, h, target, source], teacher-forced."""
        causal = causal_mask(target_ids.shape[1])
        x, weights = self.embedding(target_ids), []
        for layer, memory in zip(self.layers, memories, strict=True):
            weights.append(layer.weights(x, causal, memory, memory_mask))
            x = layer(x, causal, memory, memory_mask)
        return weights
