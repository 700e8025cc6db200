"""Attention over a cache: the operator com.microsoft::GroupQueryAttention in a graph, the same in plain torch outside.

ONNX Runtime's kernel works in place when past and present are bound to the same memory. Its cost follows the valid
length of each row, not the capacity. The torch branch is the specification: parity compares the kernel with it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from weft_export.layers.cache_rounding import CacheRounding
from weft_export.layers.positions import rotate

KeyValue = tuple[Tensor, Tensor]
"""Keys and values, each [batch, kv_heads, length, head_dim]."""

_OPERATOR = "com.microsoft::GroupQueryAttention"


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Reshape x [batch, seq, heads * head_dim] to [batch, heads, seq, head_dim]."""
    return x.view(x.shape[0], x.shape[1], num_heads, -1).transpose(1, 2)


def split_qkv(qkv: Tensor, num_heads: int, num_kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split qkv [batch, seq, (heads + 2 kv_heads) * head_dim] into query, key and value, as split_heads gives them."""
    heads = split_heads(qkv, num_heads + 2 * num_kv_heads)
    first_value = num_heads + num_kv_heads
    return heads[:, :num_heads], heads[:, num_heads:first_value], heads[:, first_value:]


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Return softmax(scale Q K^T + bias) V, heads concatenated: [batch, seq, heads * head_dim].

    query: [batch, heads, seq, head_dim].
    keys, values: [batch, kv_heads, length, head_dim]. Each head is shared by heads / kv_heads query heads ("GQA",
        Ainslie et al. 2023).
    mask: bool, broadcast to [batch, heads, seq, length]. True may be attended to.
    scale: 1 / sqrt(d_k) unless given.
    bias: added to the scores, broadcast as mask is.
    softcap: scores s become softcap tanh(s / softcap) before the bias, as in Gemma 2. None: they stay.
    sinks: as in shares_of.
    """
    group = query.shape[1] // keys.shape[1]
    if group > 1:
        keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
    if softcap is not None or sinks is not None:
        scores = query @ keys.transpose(-2, -1) * (scale or 1 / math.sqrt(query.shape[-1]))
        scores = scores if softcap is None else capped(scores, softcap)
        scores = scores if bias is None else scores + bias
        return (shares_of(scores.masked_fill(~mask, -math.inf), sinks) @ values).transpose(1, 2).flatten(2)
    if bias is not None:
        mask = bias.masked_fill(~mask, -math.inf)
    out = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
    return out.transpose(1, 2).flatten(2)


def capped(scores: Tensor, softcap: float) -> Tensor:
    """Return scores bent so that none is beyond softcap: softcap tanh(scores / softcap)."""
    return softcap * (scores / softcap).tanh()


def shares_of(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Return softmax(scores) over the last axis of scores [batch, heads, seq, length].

    sinks: [heads], the score of a place more in each head, which gives nothing and is left out of what is returned. So
        a head may look nowhere ("Efficient Streaming Language Models with Attention Sinks", Xiao et al. 2024, section
        3.3). None: there is none.
    """
    if sinks is None:
        return scores.softmax(dim=-1)
    sink = sinks[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat((scores, sink), dim=-1).softmax(dim=-1)[..., :-1]


def append_and_attend(
    qkv: Tensor,
    past: KeyValue,
    seqlens_k: Tensor,
    total_length: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    rotary: KeyValue | None,
    window: int | None = None,
    scale: float | None = None,
    bias: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    rounding: CacheRounding | None = None,
    bidirectional: bool = False,
) -> tuple[Tensor, KeyValue]:
    """Write this run's keys and values into the cache, then attend causally to all that lies there.

    qkv: [batch, seq, (heads + 2 kv_heads) * head_dim].
    past: keys and values, [batch, kv_heads, capacity, head_dim] each.
    seqlens_k: int32 [batch], the cache index of each row's last token of this run.
    total_length: int32 [1], the capacity.
    rotary: the tables cos and sin, [capacity, head_dim / 2] each.
    window: how many of the last positions a token attends to, its own included. None: all.
    scale, softcap, sinks: as in attend.
    bias: [batch, heads, seq, at least capacity], of each token towards every place of the cache.
    rounding: past and present then hold its levels, int8.
    bidirectional: each token attends to those of this run that stand behind it too. There is no window then.

    Returns [batch, seq, heads * head_dim] and the present cache.
    """
    if torch.onnx.is_in_onnx_export():
        attributes: dict[str, float] = {"num_heads": num_heads, "kv_num_heads": num_kv_heads}
        attributes["do_rotary"] = int(rotary is not None)
        if window is not None:
            attributes["local_window_size"] = window
        if bidirectional:
            attributes["causal"] = 0
        if softcap is not None:
            attributes["softcap"] = softcap
        out_width = qkv.shape[2] * num_heads // (num_heads + 2 * num_kv_heads)
        # In the operator's order: cos, sin, position_ids, attention_bias, head_sink.
        places = (*(rotary or (None, None)), None, bias, sinks)
        inputs = (qkv, None, None, *past, seqlens_k, total_length, *places)
        return _emit(inputs, attributes, scale, past, (*qkv.shape[:2], out_width), rounding)
    seq, (past_keys, past_values) = qkv.shape[1], past
    positions = seqlens_k.long()[:, None] + torch.arange(1 - seq, 1)
    query, key, value = split_qkv(qkv, num_heads, num_kv_heads)
    if rotary is not None:
        cos, sin = (table[positions][:, None] for table in rotary)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
    if rounding is not None:
        key, value = rounding.levels(key, value)
    present_keys, present_values = past_keys.clone(), past_values.clone()
    rows = torch.arange(qkv.shape[0])[:, None]
    present_keys[rows, :, positions] = key.transpose(1, 2).to(past_keys.dtype)
    present_values[rows, :, positions] = value.transpose(1, 2).to(past_values.dtype)
    index = torch.arange(past_keys.shape[2])
    # That of each row's last token, where all see it.
    seen = positions[:, -1:] if bidirectional else positions
    mask = index <= seen[:, None, :, None]
    if window is not None:
        mask = mask & (index > positions[:, None, :, None] - window)
    present = (present_keys, present_values)
    keys, values = present if rounding is None else rounding.widened(*present)
    if bias is not None:
        # A cache that is held only as far as it is used has fewer places.
        bias = bias[..., : keys.shape[2]]
    return attend(query, keys, values, mask, scale=scale, bias=bias, softcap=softcap, sinks=sinks), present


def attend_memory(
    query: Tensor,
    memory: KeyValue,
    memory_lengths: Tensor,
    *,
    num_heads: int,
    scale: float | None = None,
    rounding: CacheRounding | None = None,
) -> tuple[Tensor, KeyValue]:
    """Attend to the first memory_lengths positions of each row's memory, which stays as it is.

    query: [batch, seq, heads * head_dim].
    memory: keys and values, [batch, heads, capacity, head_dim] each.
    memory_lengths: int32 [batch].
    scale, rounding: as in append_and_attend.

    Returns [batch, seq, heads * head_dim] and the memory.
    """
    if torch.onnx.is_in_onnx_export():
        # Keys and values of length zero put the operator in its shared mode: it reads past and appends nothing.
        nothing = query[:, :0]
        capacity = torch.tensor([memory[0].shape[2]], dtype=torch.int32)
        attributes: dict[str, float] = {"num_heads": num_heads, "kv_num_heads": num_heads, "causal": 0}
        inputs = (query, nothing, nothing, *memory, memory_lengths - 1, capacity, None, None, None, None, None)
        return _emit(inputs, attributes, scale, memory, query.shape, rounding)
    mask = torch.arange(memory[0].shape[2]) < memory_lengths[:, None, None, None]
    keys, values = memory if rounding is None else rounding.widened(*memory)
    return attend(split_heads(query, num_heads), keys, values, mask, scale=scale), memory


def _emit(
    inputs: tuple[Tensor | None, ...],
    attributes: Mapping[str, float],
    scale: float | None,
    past: KeyValue,
    shape: Sequence[int],
    rounding: CacheRounding | None,
) -> tuple[Tensor, KeyValue]:
    """Emit the operator on its inputs up to head_sink."""
    query = inputs[0]
    assert query is not None
    given: dict[str, Any] = {**attributes} if scale is None else {**attributes, "scale": scale}
    if rounding is not None:
        given |= {"kv_cache_bit_width": 8, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
        inputs = (*inputs, rounding.key_scale, rounding.value_scale)
    while inputs[-1] is None:
        inputs = inputs[:-1]
    out, keys, values = torch.onnx.ops.symbolic_multi_out(
        _OPERATOR,
        inputs,
        given,
        dtypes=(query.dtype, past[0].dtype, past[1].dtype),
        shapes=(shape, past[0].shape, past[1].shape),
        version=1,
    )
    return out, (keys, values)
