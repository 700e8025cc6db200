"""The causal Transformer that decoder-only families share: pre-norm layers over a cache, and what they attended to."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.families.writer import KV_CACHE, State, Writer, flat, pairs
from weft_export.layers.attention import SelfAttention, causal_mask
from weft_export.layers.cached_attention import KeyValue
from weft_export.layers.explaining import Explanation, over_source, pick_head, pick_layer
from weft_export.layers.pooling import last_position, last_positions
from weft_export.layers.reach import UNSEEN
from weft_export.layers.run import PackedRun, Run
from weft_export.layers.score_bias import ScoreBias
from weft_export.layers.style import Style, StyledLayer
from weft_proto.paging import MAX_HEAD_DIM


class CausalLayer(StyledLayer):
    """Self-attention and feed-forward, over the whole of a sequence or a step at a time."""

    attends = True

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
        self.attention = SelfAttention(d_model, num_heads, num_kv_heads, window=window, **style.self_attention)
        self.feed_forward_norm = style.norm(d_model)
        self.feed_forward = style.feed_forward(d_model, d_ff)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        rotary: KeyValue | None,
        bias: Tensor | None = None,
        before: KeyValue | None = None,
    ) -> Tensor:
        """Map the whole of x [batch, seq, d_model] to the same shape; see SelfAttention for the rest."""
        return self._feed(x, self.attention(self.before(self.attention_norm, x), mask, rotary, bias, before))

    def weights(
        self,
        x: Tensor,
        mask: Tensor,
        rotary: KeyValue | None,
        bias: Tensor | None = None,
        before: KeyValue | None = None,
    ) -> Tensor:
        """Return the self-attention weights [batch, h, seq, seq] that forward uses."""
        return self.attention.weights(self.before(self.attention_norm, x), mask, rotary, bias, before)

    def fill(self, x: Tensor) -> tuple[Tensor, KeyValue]:
        """Map x [batch, seq, d_model] whose places all see each other; returns what a step's cache holds of it too."""
        out, kept = self.attention.fill(self.before(self.attention_norm, x))
        return self._feed(x, out), kept

    def keep(self, x: Tensor) -> KeyValue:
        """Return what a step's cache holds of x [batch, seq, d_model]."""
        return self.attention.keep(self.before(self.attention_norm, x))

    def step(
        self, x: Tensor, past: KeyValue, run: Run, rotary: KeyValue | None, bias: Tensor | None = None
    ) -> tuple[Tensor, KeyValue]:
        """Map the next positions x [batch, seq, d_model]; returns them and the present cache.

        bias [batch, h, seq, capacity] is added to the scores.
        """
        out, present = self.attention.step(self.before(self.attention_norm, x), past, run, rotary, bias)
        return self._feed(x, out), present

    def mixed_step(
        self,
        x: Tensor,
        past: KeyValue,
        run: Run,
        prompt_past: KeyValue,
        prompt: Run,
        rotary: KeyValue | None,
        biases: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> tuple[Tensor, KeyValue, KeyValue]:
        """Map each row's next position and a prompt's positions, x [batch + seq, 1, d_model]: see SelfAttention."""
        given = self.before(self.attention_norm, x)
        out, present, prompt_present = self.attention.mixed_step(given, past, run, prompt_past, prompt, rotary, biases)
        return self._feed(x, out), present, prompt_present

    def packed_step(
        self, x: Tensor, past: KeyValue, run: PackedRun, rotary: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """Map the tokens of many rows, x [tokens, 1, d_model], over caches in blocks."""
        out, present = self.attention.packed_step(self.before(self.attention_norm, x), past, run, rotary)
        return self._feed(x, out), present

    def _feed(self, x: Tensor, out: Tensor) -> Tensor:
        """Go on from a layer's input and what its attention gave."""
        return self.fed(self.feed_forward_norm, self.feed_forward, x, self.after(self.attention_norm, x, out))


class CausalTransformer(Writer):
    """N causal layers and a last norm; a family says how tokens become vectors, and vectors logits.

    windows: how many positions a token attends to in each layer, its own included. None: all that came before.
    score_bias: what is added to the scores of all layers. None: nothing.
    """

    # Most requests here sample, often from the best 40 or 50 tokens. To read a whole row of logits costs more.
    max_candidates = 64
    mixes = True
    verifies = True
    scores = True
    near_together = False
    """Whether places that see each other do so within a layer's window alone."""

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
        windows: Sequence[int | None] | None = None,
        score_bias: ScoreBias | None = None,
    ) -> None:
        super().__init__()
        sizes = (d_model, num_heads, num_kv_heads, d_ff, dropout)
        self.windows = tuple(windows or (None,) * num_layers)
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(CausalLayer(*sizes, style, window) for window in self.windows)
        self.score_bias = score_bias
        self.norm = style.last_norm(d_model)
        self.dropout = nn.Dropout(dropout)
        cache_shape = (num_kv_heads, max_tokens, style.head_dim or d_model // num_heads)
        names = [f"{layer}.{part}" for layer in range(num_layers) for part in ("key", "value")]
        self.states = tuple(State(KV_CACHE, name, cache_shape, 1) for name in names)
        self.attention_heads = (num_heads,) * num_layers

    @property
    def cached_attentions(self) -> list[nn.Module]:
        """See Writer."""
        return [layer.attention for layer in self.layers if layer.attends]

    @property
    def rotary(self) -> Sequence[KeyValue | None]:
        """Each layer's tables cos and sin [max_tokens, head_dim / 2], which turn queries and keys. None: no turning."""
        return (None,) * len(self.layers)

    def embed(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:
        """Embed ids [batch, seq], row b from position past_lengths[b] or from 0: [batch, seq, d_model]."""
        raise NotImplementedError

    def by_layer(self, states: Sequence[Tensor]) -> Sequence[tuple[Tensor, ...]]:
        """Return the states of each layer: of one that attends, its keys and values."""
        return pairs(states)

    def embed_run(self, run: Run) -> Tensor:
        """Embed what a run reads: [batch, seq, d_model]."""
        return self.embed(run.input_ids, run.past_lengths)

    def logits(self, x: Tensor) -> Tensor:
        """Project normed x [..., d_model] to logits [..., vocab]."""
        raise NotImplementedError

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits [batch, seq, vocab] for input_ids [batch, seq]; padding may only follow a row's tokens."""
        return self.logits(self.encoded(input_ids))

    def encoded(self, input_ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return what logits are made of, [batch, seq, d_model]. mask: see `through`."""
        return self.through(self.embed(input_ids), mask=mask)

    def rotary_of(self, run: Run) -> Sequence[KeyValue | None]:  # noqa: ARG002 - most turn a token by its place alone
        """Return what turns queries and keys of a run in each layer, as `rotary`."""
        return self.rotary

    def together(self, ids: Tensor, num_given: int) -> Tensor | None:  # noqa: ARG002 - most see what came before alone
        """Return which places of ids [batch, seq] see each other whatever their order, bool [batch, 1, seq, seq].

        num_given: how many of them are a prompt.
        """
        return None

    def added_of(self, run: Run) -> Sequence[Tensor | None]:  # noqa: ARG002 - most add nothing
        """Return what is added behind each layer of a run, [batch, seq, d_model]. None: nothing."""
        return (None,) * len(self.layers)

    def added_behind(self, ids: Tensor, *beside: Tensor) -> Sequence[Tensor | None]:  # noqa: ARG002 - same
        """Return the same of what embed_behind reads."""
        return (None,) * len(self.layers)

    def rotary_behind(self, ids: Tensor, *beside: Tensor) -> Sequence[KeyValue | None]:  # noqa: ARG002 - same
        """Return the same of what embed_behind reads."""
        return self.rotary

    def through(
        self,
        x: Tensor,
        rotary: Sequence[KeyValue | None] | None = None,
        together: Tensor | None = None,
        added: Sequence[Tensor | None] | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return what logits are made of, for what all layers read: both are [batch, seq, d_model].

        rotary: what turns queries and keys, as `rotary`, which it is unless it is given. together: as of `together`.
        added: what is added behind each layer. None: nothing.
        mask: bool, broadcast to [batch, h, seq, seq]: which keys each query sees in every layer. None: those before it.
        """
        x = self.dropout(x)
        added = added or (None,) * len(self.layers)
        for layer, seen, more in zip(self.layers, self._whole(x.shape[1], rotary, together, mask), added, strict=True):
            x = _with(layer(x, *seen), more)
        normed: Tensor = self.norm(x)
        return normed

    def attentions(self, input_ids: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """Return the self-attention weights [batch, h, seq, seq] of each layer that attends, over all of input_ids.

        input_ids: [batch, seq], all real.
        mask: see `through`.
        """
        x = self.embed(input_ids)
        weights = []
        for layer, seen in zip(self.layers, self._whole(input_ids.shape[1], mask=mask), strict=True):
            if layer.attends:
                weights.append(layer.weights(x, *seen))
            x = layer(x, *seen)
        return weights

    def step(self, run: Run, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """See Writer."""
        x = self.embed_run(run)
        biases = self._biases_of(run)
        presents = []
        added = self.added_of(run)
        parts = zip(self.layers, self.by_layer(states), self.rotary_of(run), biases, added, strict=True)
        for layer, past, rotary, bias, more in parts:
            x, present = layer.step(x, past, run, rotary, bias)
            x = _with(x, more)
            presents.append(present)
        picked = (last_positions if run.verifies else last_position)(x, run.lengths)
        return self.logits(self.norm(picked)), list(flat(presents))

    def mixed_step(
        self, run: Run, states: Sequence[Tensor], prompt: Run, prompt_states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """See Writer."""
        tokens = self.embed(prompt.input_ids, prompt.past_lengths).transpose(0, 1)
        x = torch.cat((self.embed(run.input_ids, run.past_lengths), tokens))
        biases = self._bias_of(run), self._bias_of(prompt)
        presents, prompt_presents = [], []
        parts = zip(self.layers, pairs(states), pairs(prompt_states), self.rotary, strict=True)
        for layer, past, prompt_past, rotary in parts:
            x, present, prompt_present = layer.mixed_step(x, past, run, prompt_past, prompt, rotary, biases)
            presents.append(present)
            prompt_presents.append(prompt_present)
        num_rows = run.input_ids.shape[0]
        last = torch.cat((x[:num_rows, 0], x[num_rows:, 0].index_select(0, prompt.lengths.long() - 1)))
        return self.logits(self.norm(last)), list(flat(presents)), list(flat(prompt_presents))

    @property
    def unpaged(self) -> str | None:
        """See Writer."""
        if self.score_bias is not None:
            return "it adds a bias to the scores of attention, which the operator for blocks does not take"
        if any(state.encoded for state in self.states):
            return "its caches begin with a picture"
        if any(state.shape[-1] > MAX_HEAD_DIM for state in self.states):
            return f"its heads have over {MAX_HEAD_DIM} numbers, which no kernel reads from blocks"
        return None

    def packed_step(self, run: PackedRun, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """See Writer."""
        # Each token is embedded as a row of its own.
        x = self.embed(run.input_ids[:, None], run.positions)
        presents = []
        for layer, past, rotary in zip(self.layers, pairs(states), self.rotary, strict=True):
            x, present = layer.packed_step(x, past, run, rotary)
            presents.append(present)
        return self.logits(self.norm(x.squeeze(1).index_select(0, run.last_index))), list(flat(presents))

    def embed_behind(self, ids: Tensor, *beside: Tensor) -> Tensor:  # noqa: ARG002 - most read tokens alone
        """Return what the layers read of a prompt and an answer, ids [1, seq]; beside stands beside the prompt's."""
        return self.embed(ids)

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:  # noqa: ARG002 - there is no source
        """Return logits [batch, target, vocab]."""
        return self.forward(target_ids)

    def explain(self, layer: Tensor, head: Tensor, target_ids: Tensor, *source: Tensor) -> Explanation:
        """Return self-attention from the prompt's last token and target_ids to the prompt, source[0] [1, prompt].

        source[1] is its length. What stands behind that is for embed_behind.
        """
        prompt, beside = source[0], source[2:]
        ids = torch.cat((prompt, target_ids), dim=1)
        last = prompt.shape[1] - 1
        x = self.embed_behind(ids, *beside)
        layers = []
        whole = self._whole(ids.shape[1], self.rotary_behind(ids, *beside), self.together(ids, prompt.shape[1]))
        for block, seen, more in zip(self.layers, whole, self.added_behind(ids, *beside), strict=True):
            if block.attends:
                weights = block.weights(x, *seen)
                layers.append(pick_head(weights[0, :, last:, : last + 1], head))
            x = _with(block(x, *seen), more)
        return over_source(pick_layer(layers, layer))

    def _whole(
        self,
        seq: int,
        rotary: Sequence[KeyValue | None] | None = None,
        together: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> list[tuple[Tensor, KeyValue | None, Tensor | None]]:
        """Return what each layer needs besides x to map a whole sequence: the mask, the rotation and the bias."""
        masks = {
            window: self._seen(seq, window, together) if mask is None else mask
            for window in dict.fromkeys(self.windows)
        }
        bias = None if self.score_bias is None else self.score_bias(seq)
        turned = self.rotary if rotary is None else rotary
        return [(masks[window], tables, bias) for window, tables in zip(self.windows, turned, strict=True)]

    def _seen(self, seq: int, window: int | None, together: Tensor | None) -> Tensor:
        """Return which places each place sees, bool [1 or batch, 1, seq, seq]."""
        seen = causal_mask(seq, window)
        if together is None:
            return seen
        if window is not None and self.near_together:
            index = torch.arange(seq)
            together = together & (index > index[:, None] - window)
        return seen | together

    def _biases_of(self, run: Run) -> Sequence[Tensor | None]:
        """Return what is added to the scores of each layer."""
        if not run.bidirectional or not self.near_together:
            return (self._bias_of(run),) * len(self.layers)
        near = {window: self._near(run, window) for window in dict.fromkeys(self.windows)}
        return [near[window] for window in self.windows]

    def _near(self, run: Run, window: int | None) -> Tensor | None:
        """Return what keeps a run that reads both ways from what is beyond a window, [batch, 1, seq, capacity]."""
        if window is None:
            return None
        places = run.past_lengths.long()[:, None] + torch.arange(run.input_ids.shape[1])
        is_far = torch.arange(self.states[0].shape[1]) <= places[..., None] - window
        return torch.where(is_far, UNSEEN, 0.0)[:, None]

    def _bias_of(self, run: Run) -> Tensor | None:
        if self.score_bias is None:
            return None
        return self.score_bias.at(run.past_lengths.long()[:, None] + torch.arange(run.input_ids.shape[1]))


def _with(x: Tensor, more: Tensor | None) -> Tensor:
    return x if more is None else x + more.to(x.dtype)
