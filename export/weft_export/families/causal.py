"""The causal Transformer that decoder-only families share: pre-norm layers over a cache, and what they attended to."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.families.state import KV_CACHE, State, flat, pairs
from weft_export.families.writer import Writer
from weft_export.layers.attention import SelfAttention, causal_mask
from weft_export.layers.cached_attention import KeyValue
from weft_export.layers.explaining import Explanation, over_source, pick_head, pick_layer
from weft_export.layers.pooling import last_position
from weft_export.layers.run import Run
from weft_export.layers.style import Style, StyledLayer


class CausalLayer(StyledLayer):
    """Self-attention and feed-forward, over the whole of a sequence or a step at a time."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        d_ff: int,
        dropout: float,
        style: Style,
        window: int | None,
    ) -> None:
        super().__init__(style, dropout)
        self.attention_norm = style.norm(d_model)
        self.attention = SelfAttention(d_model, num_heads, num_kv_heads, window=window, **style.attention)
        self.feed_forward_norm = style.norm(d_model)
        self.feed_forward = style.feed_forward(d_model, d_ff)

    def forward(self, x: Tensor, mask: Tensor, rotary: KeyValue | None) -> Tensor:
        """Map the whole of x [batch, seq, d_model] to the same shape."""
        x = self.after(self.attention_norm, x, self.attention(self.before(self.attention_norm, x), mask, rotary))
        return self._feed(x)

    def weights(self, x: Tensor, mask: Tensor, rotary: KeyValue | None) -> Tensor:
        """Return the self-attention weights [batch, h, seq, seq] that forward uses."""
        return self.attention.weights(self.before(self.attention_norm, x), mask, rotary)

    def step(self, x: Tensor, past: KeyValue, run: Run, rotary: KeyValue | None) -> tuple[Tensor, KeyValue]:
        """Map the next positions x [batch, seq, d_model]; returns them and the present cache."""
        out, present = self.attention.step(self.before(self.attention_norm, x), past, run, rotary)
        return self._feed(self.after(self.attention_norm, x, out)), present

    def mixed_step(
        self, x: Tensor, past: KeyValue, run: Run, prompt_past: KeyValue, prompt: Run, rotary: KeyValue | None
    ) -> tuple[Tensor, KeyValue, KeyValue]:
        """Map each row's next position and a prompt's positions, x [batch + seq, 1, d_model]: see SelfAttention."""
        given = self.before(self.attention_norm, x)
        out, present, prompt_present = self.attention.mixed_step(given, past, run, prompt_past, prompt, rotary)
        return self._feed(self.after(self.attention_norm, x, out)), present, prompt_present

    def _feed(self, x: Tensor) -> Tensor:
        return self.after(self.feed_forward_norm, x, self.feed_forward(self.before(self.feed_forward_norm, x)))


class CausalTransformer(Writer):
    """N causal layers and a last norm; a family says how tokens become vectors, and vectors logits.

    window is how many positions a token attends to, its own included; None for all that came before.
    """

    # Most requests here sample, often from the best 40 or 50 tokens. To read a whole row of logits costs more.
    max_candidates = 64
    mixes = True

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        d_ff: int,
        dropout: float,
        style: Style,
        *,
        max_tokens: int,
        window: int | None = None,
    ) -> None:
        super().__init__()
        sizes = (d_model, num_heads, num_kv_heads, d_ff, dropout)
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(CausalLayer(*sizes, style, window) for _ in range(num_layers))
        self.norm = style.last_norm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.window = window
        cache_shape = (num_kv_heads, max_tokens, d_model // num_heads)
        names = [f"{layer}.{part}" for layer in range(num_layers) for part in ("key", "value")]
        self.states = tuple(State(KV_CACHE, name, cache_shape, 1) for name in names)
        self.attention_heads = (num_heads,) * num_layers

    @property
    def cached_attentions(self) -> list[nn.Module]:
        """See Writer."""
        return [layer.attention for layer in self.layers]

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

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits [batch, seq, vocab] for input_ids [batch, seq]; padding may only follow a row's tokens."""
        mask = causal_mask(input_ids.shape[1], self.window)
        x = self.dropout(self.embed(input_ids))
        for layer in self.layers:
            x = layer(x, mask, self.rotary)
        return self.logits(self.norm(x))

    def step(self, run: Run, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return logits [batch, vocab] of each row's last real token, and the present caches."""
        x = self.embed(run.input_ids, run.past_lengths)
        presents = []
        for layer, past in zip(self.layers, pairs(states), strict=True):
            x, present = layer.step(x, past, run, self.rotary)
            presents.append(present)
        return self.logits(self.norm(last_position(x, run.lengths))), list(flat(presents))

    def mixed_step(
        self, run: Run, states: Sequence[Tensor], prompt: Run, prompt_states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """See Writer."""
        tokens = self.embed(prompt.input_ids, prompt.past_lengths).transpose(0, 1)
        x = torch.cat((self.embed(run.input_ids, run.past_lengths), tokens))
        presents, prompt_presents = [], []
        for layer, past, prompt_past in zip(self.layers, pairs(states), pairs(prompt_states), strict=True):
            x, present, prompt_present = layer.mixed_step(x, past, run, prompt_past, prompt, self.rotary)
            presents.append(present)
            prompt_presents.append(prompt_present)
        num_rows = run.input_ids.shape[0]
        last = torch.cat((x[:num_rows, 0], x[num_rows:, 0].index_select(0, prompt.lengths.long() - 1)))
        return self.logits(self.norm(last)), list(flat(presents)), list(flat(prompt_presents))

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:  # noqa: ARG002 - there is no source
        """Return logits [batch, target, vocab]."""
        return self.forward(target_ids)

    def explain(self, layer: Tensor, head: Tensor, target_ids: Tensor, *source: Tensor) -> Explanation:
        """Return self-attention from the prompt's last token and target_ids to the prompt, source[0] [1, prompt]."""
        prompt = source[0]
        ids = torch.cat((prompt, target_ids), dim=1)
        mask, last = causal_mask(ids.shape[1], self.window), prompt.shape[1] - 1
        x = self.embed(ids)
        layers = []
        for block in self.layers:
            weights = block.weights(x, mask, self.rotary)
            layers.append(pick_head(weights[0, :, last:, : last + 1], head))
            x = block(x, mask, self.rotary)
        return over_source(pick_layer(layers, layer))
