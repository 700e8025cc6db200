"""Multi-head attention of a sequence to itself ("Attention Is All You Need", section 3.2)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.layers.cache_rounding import CacheRounding
from weft_export.layers.cached_attention import (
    KeyValue,
    append_and_attend,
    attend,
    capped,
    shares_of,
    split_heads,
    split_qkv,
)
from weft_export.layers.explaining import noted
from weft_export.layers.paged_attention import append_and_attend_packed
from weft_export.layers.positions import rotate
from weft_export.layers.query_key_norm import HeadNorm, WidthNorm
from weft_export.layers.run import PackedRun, Run
from weft_export.layers.unpadding import Unpadding

OPERATOR = "weft::Attention"
"""Stands for ONNX's own of opset 24, see graphs/ragged_attention.py: torch traces older ones."""


def padding_mask(lengths: Tensor, seq: int) -> Tensor:
    """Return bool [batch, 1, 1, seq], True where a right-padded row of lengths [batch] holds a token."""
    return torch.arange(seq, device=lengths.device) < lengths[:, None, None, None]


def causal_mask(seq: int, window: int | None = None) -> Tensor:
    """Return bool [1, 1, seq, seq]: whether a key is at or before the query, and among the last `window` of these."""
    index = torch.arange(seq)
    seen = index <= index[:, None]
    if window is not None:
        seen = seen & (index > index[:, None] - window)
    return seen[None, None]


def _of_places(rotary: KeyValue, seq: int) -> tuple[Tensor, Tensor]:
    """Return cos and sin as they stand beside heads [batch, h, seq, head_dim], of all tokens or of each."""
    cos, sin = rotary
    return (cos[:seq], sin[:seq]) if cos.dim() == 2 else (cos[:, None], sin[:, None])


def attention_weights(
    query: Tensor,
    keys: Tensor,
    mask: Tensor,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Return softmax(scale Q K^T + bias) in float32, [batch, h, seq, length]. Where mask is False it is 0.

    query: [batch, h, seq, head_dim].
    keys: [batch, h, length, head_dim].
    scale, bias, softcap, sinks: as in attend.
    """
    scores = query.float() @ keys.float().transpose(-2, -1) * (scale or 1 / math.sqrt(query.shape[-1]))
    if softcap is not None:
        scores = capped(scores, softcap)
    if bias is not None:
        scores = scores + bias.float()
    return noted(shares_of(scores.masked_fill(~mask, -math.inf), None if sinks is None else sinks.float()))


class SelfAttention(nn.Module):
    """Attention of a sequence to itself, with h query heads over num_kv_heads shared key and value heads.

    window: how many positions a token sees in a step, its own included. None: all. In forward, the mask says it.
    bias, output_bias: whether the projections have one, qkv and the last.
    head_dim: d_model / num_heads unless given.
    scale, softcap: as in attend.
    qk_norm_eps: queries and keys pass an RMSNorm with this epsilon. None: no norm.
    whole_qk_norm: that norm is of all heads together, not of each.
    rounding: with one, a step's cache holds its levels, and forward attends to what the levels stand for.
    sinks: as in shares_of, of layers that see what came before alone: `encode` and `fill` have none.
    turned_norm: a norm of each head behind the rotation, likewise. Without it, norms of heads stand before.
    """

    rounding: CacheRounding | None
    sinks: nn.Parameter | None
    turned_norm: HeadNorm | None
    # Whether encode takes tokens without padding.
    unpads = True

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        *,
        bias: bool = True,
        output_bias: bool | None = None,
        window: int | None = None,
        head_dim: int | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        qk_norm_eps: float | None = None,
        whole_qk_norm: bool = False,
    ) -> None:
        super().__init__()
        self.rounding = None
        self.sinks = None
        self.window = window
        self.scale = scale
        self.softcap = softcap
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        head_dim = head_dim or d_model // num_heads
        self.qkv = nn.Linear(d_model, (num_heads + 2 * self.num_kv_heads) * head_dim, bias=bias)
        self.output = nn.Linear(num_heads * head_dim, d_model, bias=bias if output_bias is None else output_bias)
        self.qk_norm = None
        self.turned_norm = None
        if qk_norm_eps is not None:
            kind = WidthNorm if whole_qk_norm else HeadNorm
            self.qk_norm = kind(num_heads, self.num_kv_heads, head_dim, qk_norm_eps)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        rotary: KeyValue | None = None,
        bias: Tensor | None = None,
        before: KeyValue | None = None,
    ) -> Tensor:
        """Attend over the whole of x [batch, seq, d_model] where mask, broadcast to [batch, h, seq, seq], is True.

        rotary: the tables cos and sin, [at least seq, head_dim / 2] each; or those of each token, see turned_at.
        bias: [1, h, seq, seq], added to the scores.
        before: keys and values of what stands before x: see `fill`. The mask has columns for it.
        """
        projected = self._project(x, rotary, before)
        options: dict[str, Any] = {"scale": self.scale, "bias": bias, "softcap": self.softcap, "sinks": self.sinks}
        out: Tensor = self.output(attend(*projected, mask, **options))
        return out

    def weights(
        self,
        x: Tensor,
        mask: Tensor,
        rotary: KeyValue | None = None,
        bias: Tensor | None = None,
        before: KeyValue | None = None,
    ) -> Tensor:
        """Return the attention weights, float32 [batch, h, seq, seq], that forward uses."""
        query, key, _ = self._project(x, rotary, before)
        bias = self.bias_of(query, key, bias)
        key = key.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)
        options: dict[str, Any] = {"scale": self.scale, "bias": bias, "softcap": self.softcap, "sinks": self.sinks}
        return attention_weights(query, key, mask, **options)

    def _projected(self, x: Tensor) -> Tensor:
        """Return queries, keys and values of x beside each other, before any rotation."""
        qkv: Tensor = self.qkv(x)
        return qkv if self.qk_norm is None else self.qk_norm(qkv)

    def _project(
        self, x: Tensor, rotary: KeyValue | None, before: KeyValue | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value of the whole of x in split_qkv's shapes, as a step would attend to them."""
        query, key, value = split_qkv(self._projected(x), self.num_heads, self.num_kv_heads)
        if rotary is not None:
            cos, sin = _of_places(rotary, x.shape[1])
            query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        if self.turned_norm is not None:
            query, key = self.turned_norm.query(query), self.turned_norm.key(key)
        key, value = (key, value) if self.rounding is None else self.rounding(key, value)
        if before is not None:
            key, value = torch.cat((before[0], key), dim=2), torch.cat((before[1], value), dim=2)
        return query, key, value

    def fill(self, x: Tensor) -> tuple[Tensor, KeyValue]:
        """Attend both ways over all of x [batch, seq, d_model], and return what a step's cache holds of it too."""
        query, key, value = self._projected(x).chunk(3, dim=-1)
        out: Tensor = self.output(self._gathered(query, key, value))
        return out, self._kept(key, value)

    def keep(self, x: Tensor) -> KeyValue:
        """Return what a step's cache holds of x [batch, seq, d_model]."""
        _, key, value = self._projected(x).chunk(3, dim=-1)
        return self._kept(key, value)

    def _kept(self, key: Tensor, value: Tensor) -> KeyValue:
        kept = split_heads(key, self.num_heads), split_heads(value, self.num_heads)
        return kept if self.rounding is None else self.rounding.levels(*kept)

    def encode(
        self,
        x: Tensor,
        lengths: Tensor | None,
        bias: Tensor | None = None,
        num_read: int | None = None,
        rotary: KeyValue | None = None,
        unpadding: Unpadding | None = None,
    ) -> Tensor:
        """Attend both ways over x [batch, seq, d_model], to the first lengths [batch] positions, or to all if None.

        bias [1, h or 1, seq, seq] is added to the scores. With num_read only so many first positions ask and get an
        answer. rotary is as in forward. With unpadding x is [tokens, 1, d_model]; see EncoderLayer.
        """
        projected = self._projected(x)
        query, key, value = projected.chunk(3, dim=-1) if unpadding is None else unpadding.thirds(projected)
        if rotary is not None:
            query, key = self._turned(query, rotary), self._turned(key, rotary)
        bias = self.bias_of(split_heads(query, self.num_heads), split_heads(key, self.num_heads), bias)
        if num_read is not None:
            query = query[:, :num_read]
            bias = None if bias is None else bias[:, :, :num_read]
        gathered = self._gathered(query, key, value, lengths, bias)
        out: Tensor = self.output(gathered if unpadding is None or num_read is not None else unpadding.tokens(gathered))
        return out

    def _gathered(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        """Attend both ways from query [batch, asking, d_model] to keys and values [batch, seq, d_model]."""
        if torch.onnx.is_in_onnx_export():
            return self._emit_encode(query, key, value, lengths, bias)
        mask = padding_mask(lengths, key.shape[1]) if lengths is not None else torch.ones(1, 1, 1, 1, dtype=torch.bool)
        query, key, value = (split_heads(part, self.num_heads) for part in (query, key, value))
        return attend(query, key, value, mask, scale=self.scale, bias=bias)

    def bias_of(self, query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor | None:  # noqa: ARG002 - for others
        """Return what is added to the scores of query and key [batch, h, seq, head_dim]: here what is given.

        Only encode and weights ask.
        """
        return bias

    def _turned(self, x: Tensor, rotary: KeyValue) -> Tensor:
        """Rotate x [batch, seq, h * head_dim] before an operator that does not."""
        cos, sin = _of_places(rotary, x.shape[1])
        return rotate(split_heads(x, self.num_heads), cos, sin).transpose(1, 2).flatten(2)

    def _emit_encode(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        # scaled_dot_product_attention becomes ten operators. Each of these is one, with the same bits in any batch.
        scale = {} if self.scale is None else {"scale": self.scale}
        if lengths is not None and query.dtype == torch.float32:
            # On a CPU it takes half the time of the other one, which first copies all heads apart.
            inputs: tuple[Tensor | None, ...] = (query, key, value, bias, None, None, lengths.long())
            operator = OPERATOR
            attributes: dict[str, Any] = {"q_num_heads": self.num_heads, "kv_num_heads": self.num_heads}
        else:
            # Of inputs of one length it holds no whole table of scores, and a device has better kernels for it.
            inputs = (query, key, value, None, lengths, *(() if bias is None else (bias,)))
            operator = "com.microsoft::MultiHeadAttention"
            attributes = {"num_heads": self.num_heads}
        (gathered,) = torch.onnx.ops.symbolic_multi_out(
            operator, inputs, attributes | scale, dtypes=(query.dtype,), shapes=(query.shape,), version=1
        )
        out: Tensor = gathered
        return out

    def step(
        self, x: Tensor, past: KeyValue, run: Run, rotary: KeyValue | None = None, bias: Tensor | None = None
    ) -> tuple[Tensor, KeyValue]:
        """Append x [batch, seq, d_model] to the cache and attend to it; see append_and_attend for the rest."""
        out, present = self._append(self._projected(x), past, run, rotary, bias)
        return self.output(out), present

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
        """Do step for the rows of run and for a prompt at once; biases are those of both.

        x is [batch + seq, 1, d_model]: first one token of each row, then the tokens of the prompt. Returns the same
        shape, and the present caches of both.
        """
        num_rows = run.input_ids.shape[0]
        # The leading axis is that of tokens, because cutting there moves nothing.
        qkv = self._projected(x)
        own, others = qkv[:num_rows], qkv[num_rows:].transpose(0, 1)
        out, present = self._append(own, past, run, rotary, biases[0])
        prompt_out, prompt_present = self._append(others, prompt_past, prompt, rotary, biases[1])
        return self.output(torch.cat((out, prompt_out.transpose(0, 1)))), present, prompt_present

    def packed_step(
        self, x: Tensor, past: KeyValue, run: PackedRun, rotary: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """Do step for the tokens of many rows, x [tokens, 1, d_model]; see append_and_attend_packed for the rest.

        In a graph alone. A norm of each head is the operator's there.
        """
        norm = self.qk_norm if isinstance(self.qk_norm, HeadNorm) else None
        out, present = append_and_attend_packed(
            (self._projected(x) if norm is None else self.qkv(x)).squeeze(1),
            past,
            run,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            rotary=rotary,
            qk_norm=None if norm is None else (norm.query.weight, norm.key.weight, norm.query.eps),
            window=self.window,
            scale=self.scale,
            softcap=self.softcap,
            rounding=self.rounding,
        )
        return self.output(out[:, None]), present

    def _append(
        self, qkv: Tensor, past: KeyValue, run: Run, rotary: KeyValue | None, bias: Tensor | None = None
    ) -> tuple[Tensor, KeyValue]:
        if rotary is not None and rotary[0].dim() > 2:
            # The operator turns by the place of a token, and these are turned by more than that.
            turned = self.num_heads + self.num_kv_heads
            heads = qkv.view(*qkv.shape[:2], turned + self.num_kv_heads, -1)
            cos, sin = (table[:, :, None] for table in rotary)
            qkv = torch.cat((rotate(heads[:, :, :turned], cos, sin), heads[:, :, turned:]), dim=2).flatten(2)
            rotary = None
        if self.turned_norm is not None:
            assert rotary is None, "the operator would turn heads behind their norm. This is a bug."
            qkv = self.turned_norm(qkv)
        return append_and_attend(
            qkv,
            past,
            run.last_index,
            run.total_length,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            rotary=rotary,
            # The operator has no window without causality: who reads both ways gives a bias.
            window=None if run.bidirectional else self.window,
            scale=self.scale,
            bias=bias,
            softcap=self.softcap,
            sinks=self.sinks,
            rounding=self.rounding,
            bidirectional=run.bidirectional,
        )
