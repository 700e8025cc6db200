"""The Transformer decoder with cross-attention: it writes translations and captions."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.layers.attention import SelfAttention, causal_mask
from weft_export.layers.cached_attention import KeyValue
from weft_export.layers.cross_attention import CrossAttention
from weft_export.layers.embeddings import TokenEmbedding
from weft_export.layers.pooling import last_position, last_positions
from weft_export.layers.positions import Rope, rope_tables
from weft_export.layers.run import Run
from weft_export.layers.score_bias import RelativeBias
from weft_export.layers.style import DEFAULT_STYLE, Style, StyledLayer


class DecoderLayer(StyledLayer):
    """Causal self-attention, cross-attention and feed-forward."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float,
        style: Style = DEFAULT_STYLE,
        d_memory: int | None = None,
    ) -> None:
        super().__init__(style, dropout)
        self.self_attention_norm = style.norm(d_model)
        self.self_attention = SelfAttention(d_model, num_heads, **style.self_attention)
        self.cross_attention_norm = style.norm(d_model)
        self.cross_attention = CrossAttention(d_model, num_heads, **style.attention, d_memory=d_memory)
        self.feed_forward_norm = style.norm(d_model)
        self.feed_forward = style.feed_forward(d_model, d_ff)

    def forward(
        self,
        x: Tensor,
        causal: Tensor,
        memory: KeyValue,
        memory_mask: Tensor,
        bias: Tensor | None = None,
        rotary: KeyValue | None = None,
    ) -> Tensor:
        """Map the whole target x [batch, target, d_model] to the same shape, teacher-forced.

        bias [1, h, target, target] is added to the self-attention's scores. rotary: as in SelfAttention.
        """
        x = self._attend_to_self(x, causal, bias, rotary)
        out = self.cross_attention(self.before(self.cross_attention_norm, x), memory, memory_mask)
        return self.fed(self.feed_forward_norm, self.feed_forward, x, self.after(self.cross_attention_norm, x, out))

    def step(
        self,
        x: Tensor,
        past: KeyValue,
        run: Run,
        memory: KeyValue,
        bias: Tensor | None,
        rotary: KeyValue | None = None,
    ) -> tuple[Tensor, KeyValue, KeyValue]:
        """Map the next positions x [batch, seq, d_model]; returns them, the present cache and the memory.

        bias [batch, h, seq, capacity] is added to the self-attention's scores.
        """
        given = self.before(self.self_attention_norm, x)
        out, present = self.self_attention.step(given, past, run, rotary, bias)
        x = self.after(self.self_attention_norm, x, out)
        given = self.before(self.cross_attention_norm, x)
        out, memory = self.cross_attention.step(given, memory, run.lengths_of_memory)
        attended = self.after(self.cross_attention_norm, x, out)
        return self.fed(self.feed_forward_norm, self.feed_forward, x, attended), present, memory

    def weights(
        self,
        x: Tensor,
        causal: Tensor,
        memory: KeyValue,
        memory_mask: Tensor,
        bias: Tensor | None = None,
        rotary: KeyValue | None = None,
    ) -> Tensor:
        """Return the cross-attention weights [batch, h, target, source] that forward uses."""
        x = self._attend_to_self(x, causal, bias, rotary)
        return self.cross_attention.weights(self.before(self.cross_attention_norm, x), memory, memory_mask)

    def self_weights(
        self, x: Tensor, causal: Tensor, bias: Tensor | None = None, rotary: KeyValue | None = None
    ) -> Tensor:
        """Return the self-attention weights [batch, h, target, target] that forward uses."""
        return self.self_attention.weights(self.before(self.self_attention_norm, x), causal, rotary, bias)

    def _attend_to_self(self, x: Tensor, causal: Tensor, bias: Tensor | None, rotary: KeyValue | None) -> Tensor:
        out = self.self_attention(self.before(self.self_attention_norm, x), causal, rotary, bias)
        return self.after(self.self_attention_norm, x, out)


class Decoder(nn.Module):
    """N decoder layers over target tokens. A last norm follows pre-norm layers. The embedding gives the logits too."""

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        embedding: TokenEmbedding,
        max_tokens: int,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float,
        style: Style = DEFAULT_STYLE,
        relative_bias: RelativeBias | None = None,
        d_memory: int | None = None,
        rotation: Rope | None = None,
    ) -> None:
        """Make the layers.

        d_memory: the width of what the encoder gives, d_model unless given.
        rotation: how self-attention turns heads. None: not at all.
        """
        super().__init__()
        sizes = (d_model, num_heads, d_ff, dropout)
        self.embedding = embedding
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(DecoderLayer(*sizes, style, d_memory) for _ in range(num_layers))
        self.norm = style.last_norm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.relative_bias = relative_bias
        self.turns = rotation is not None
        if rotation is not None:
            # A graph is traced with more tokens than the shortest model takes.
            cos, sin = rope_tables(-(-max_tokens // 8) * 8, rotation)
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)
        self.cache_shape = (num_heads, max_tokens, style.head_dim or d_model // num_heads)

    @property
    def rotary(self) -> KeyValue | None:
        """The tables by which heads are turned."""
        return (self.cos, self.sin) if self.turns else None

    def cross_attention_cache(self, encoded: Tensor) -> list[KeyValue]:
        """Project encoded [batch, source, d_model] to each layer's memory of a step."""
        return [layer.cross_attention.cross_attention_cache(encoded) for layer in self.layers]

    def project(self, encoded: Tensor) -> list[KeyValue]:
        """Project encoded [batch, source, d_model] to each layer's keys and values for forward."""
        return [layer.cross_attention.project(encoded) for layer in self.layers]

    def forward(self, target_ids: Tensor, memories: Sequence[KeyValue], memory_mask: Tensor) -> Tensor:
        """Return logits [batch, target, vocab] for target_ids [batch, target], each position seeing those before it."""
        causal, biases = self._whole(target_ids)
        x = self.dropout(self.embedding(target_ids))
        for layer, memory, bias in zip(self.layers, memories, biases, strict=True):
            x = layer(x, causal, memory, memory_mask, bias, self.rotary)
        return self.embedding.logits(self.norm(x))

    def step(
        self, run: Run, caches: Sequence[KeyValue], memories: Sequence[KeyValue]
    ) -> tuple[Tensor, list[KeyValue], list[KeyValue]]:
        """Do as SequenceToSequence.step, of caches and memories."""
        x = self.embedding(run.input_ids, run.past_lengths)
        biases = self._in_layers(
            None
            if self.relative_bias is None
            else self.relative_bias.at(run.past_lengths.long()[:, None] + torch.arange(x.shape[1]))
        )
        presents, kept = [], []
        for layer, past, memory, bias in zip(self.layers, caches, memories, biases, strict=True):
            x, present, same = layer.step(x, past, run, memory, bias, self.rotary)
            presents.append(present)
            kept.append(same)
        picked = (last_positions if run.verifies else last_position)(x, run.lengths)
        return self.embedding.logits(self.norm(picked)), presents, kept

    def attentions(self, target_ids: Tensor, memories: Sequence[KeyValue], memory_mask: Tensor) -> list[Tensor]:
        """Return each layer's cross-attention weights [batch, h, target, source], teacher-forced."""
        return self._attentions(target_ids, memories, memory_mask)[0]

    def both_attentions(
        self, target_ids: Tensor, memories: Sequence[KeyValue], memory_mask: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return each layer's cross-attention weights, and its self-attention weights [batch, h, target, target]."""
        return self._attentions(target_ids, memories, memory_mask, of_self=True)

    def _attentions(
        self, target_ids: Tensor, memories: Sequence[KeyValue], memory_mask: Tensor, *, of_self: bool = False
    ) -> tuple[list[Tensor], list[Tensor]]:
        causal, biases = self._whole(target_ids)
        x = self.embedding(target_ids)
        weights, self_weights = [], []
        for layer, memory, bias in zip(self.layers, memories, biases, strict=True):
            if of_self:
                self_weights.append(layer.self_weights(x, causal, bias, self.rotary))
            weights.append(layer.weights(x, causal, memory, memory_mask, bias, self.rotary))
            x = layer(x, causal, memory, memory_mask, bias, self.rotary)
        return weights, self_weights

    def _whole(self, target_ids: Tensor) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Return the mask and each layer's bias of self-attention over a whole target."""
        seq = target_ids.shape[1]
        return causal_mask(seq), self._in_layers(None if self.relative_bias is None else self.relative_bias(seq))

    def _in_layers(self, bias: Tensor | None) -> Sequence[Tensor | None]:
        if self.relative_bias is None or bias is None:
            return [None] * len(self.layers)
        return self.relative_bias.in_layers(bias, len(self.layers))
