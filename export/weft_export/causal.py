"""The causal Transformer that decoder-only families share: pre-norm layers over a cache, and what they attended to."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.attention import SelfAttention, causal_mask
from weft_export.cached_attention import KeyValue
from weft_export.embedding import last_position
from weft_export.explaining import Explanation, over_source, pick_head, pick_layer
from weft_export.writer import KV_CACHE, Run, State, Writer, flat, pairs


class CausalLayer(nn.Module):
    """x + SelfAttention(Norm(x)), then x + FFN(Norm(x)), of parts that the family chooses."""

    def __init__(
        self,
        attention_norm: nn.Module,
        attention: SelfAttention,
        feed_forward_norm: nn.Module,
        feed_forward: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        self.feed_forward_norm = feed_forward_norm
        self.feed_forward = feed_forward
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor, rotary: KeyValue | None) -> Tensor:
        """Map the whole of x [batch, seq, d_model] to the same shape."""
        x = x + self.dropout(self.attention(self.attention_norm(x), mask, rotary))
        out: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return out

    def weights(self, x: Tensor, mask: Tensor, rotary: KeyValue | None) -> Tensor:
        """Return the self-attention weights [batch, h, seq, seq] that forward uses."""
        return self.attention.weights(self.attention_norm(x), mask, rotary)

    def step(
        self, x: Tensor, past: KeyValue, seqlens_k: Tensor, total_length: Tensor, rotary: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """Map the next positions x [batch, seq, d_model]; returns them and the present cache."""
        out, present = self.attention.step(self.attention_norm(x), past, seqlens_k, total_length, rotary)
        x = x + out
        return x + self.feed_forward(self.feed_forward_norm(x)), present


class CausalTransformer(Writer):
    """Causal layers and a last norm; a family builds them, and says how tokens become vectors and vectors logits."""

    # Sampling is the rule here and often from the best 40 or 50; reading a whole row of logits costs more.
    max_candidates = 64
    layers: Any  # torch does not type the items of a ModuleList
    norm: nn.Module
    dropout: nn.Module
    window: int | None = None
    """How many positions a token attends to, its own included; None for all that came before."""

    @property
    def rotary(self) -> KeyValue | None:
        """The tables cos and sin [max_tokens, head_dim / 2] that turn queries and keys, if positions are told so."""
        return None

    def embed(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:
        """Embed ids [batch, seq], row b from position past_lengths[b] or from 0: [batch, seq, d_model]."""
        raise NotImplementedError

    def logits(self, x: Tensor) -> Tensor:
        """Project normed x [..., d_model] to logits [..., vocab]."""
        raise NotImplementedError

    def declare(self, num_heads: int, num_kv_heads: int, max_tokens: int, head_dim: int) -> None:
        """Declare the cache of each layer, and that each layer's heads can explain."""
        names = [f"{layer}.{part}" for layer in range(len(self.layers)) for part in ("key", "value")]
        self.states = tuple(State(KV_CACHE, name, (num_kv_heads, max_tokens, head_dim), 1) for name in names)
        self.attention_heads = (num_heads,) * len(self.layers)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits [batch, seq, vocab] for input_ids [batch, seq]; padding may only follow a row's tokens."""
        mask = causal_mask(input_ids.shape[1], self.window)
        x = self.dropout(self.embed(input_ids))
        for layer in self.layers:
            x = layer(x, mask, self.rotary)
        return self.logits(self.norm(x))

    def step(self, run: Run, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return logits [batch, vocab] of each row's last real token, and the present caches."""
        x, presents = self.embed(run.input_ids, run.past_lengths), []
        for layer, past in zip(self.layers, pairs(states), strict=True):
            x, present = layer.step(x, past, run.last_index, run.total_length, self.rotary)
            presents.append(present)
        return self.logits(self.norm(last_position(x, run.lengths))), list(flat(presents))

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:  # noqa: ARG002 - there is no source
        """Return logits [batch, target, vocab]."""
        return self.forward(target_ids)

    def explain(self, layer: Tensor, head: Tensor, target_ids: Tensor, *source: Tensor) -> Explanation:
        """Return self-attention from the prompt's last token and target_ids to the prompt, source[0] [1, prompt]."""
        prompt = source[0]
        ids = torch.cat((prompt, target_ids), dim=1)
        mask, last = causal_mask(ids.shape[1], self.window), prompt.shape[1] - 1
        x, layers = self.embed(ids), []
        for block in self.layers:
            weights = block.weights(x, mask, self.rotary)
            layers.append(pick_head(weights[0, :, last:, : last + 1], head))
            x = block(x, mask, self.rotary)
        return over_source(pick_layer(layers, layer))
