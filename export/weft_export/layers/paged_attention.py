"""Attention over a cache in blocks: the operator com.microsoft::PagedAttention ("PagedAttention", Kwon et al. 2023).

It runs on CUDA, in half precision. Outside a graph there is nothing of it: a model in torch keeps its sequences apart,
and verification/paged_stand_in.py has what the operator computes, in operators of ONNX.
"""

from typing import Any

import torch
from torch import Tensor

from weft_export.layers.cache_rounding import CacheRounding
from weft_export.layers.cached_attention import KeyValue
from weft_export.layers.run import PackedRun

_OPERATOR = "com.microsoft::PagedAttention"


def block_tokens(head_dim: int) -> int:
    """Return how many tokens a block has.

    Flash attention reads so many keys at once of heads of this size, and cannot read them from two blocks
    (run_mha_fwd_splitkv_dispatch in ONNX Runtime's flash_fwd_launch_template.h). Smaller blocks would be read by a
    slower kernel, and larger ones hold more that nobody uses.
    """
    if head_dim <= 64:
        return 256
    return 128 if head_dim <= 128 else 64


def append_and_attend_packed(
    qkv: Tensor,
    past: KeyValue,
    run: PackedRun,
    *,
    num_heads: int,
    num_kv_heads: int,
    rotary: KeyValue | None,
    qk_norm: tuple[Tensor, Tensor, float] | None = None,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    rounding: CacheRounding | None = None,
) -> tuple[Tensor, KeyValue]:
    """Write this run's keys and values into blocks, then attend from each token to what came before it in its row.

    qkv: [tokens, (heads + 2 kv_heads) * head_dim].
    past: keys and values, [blocks, block_tokens, kv_heads, head_dim] each.
    qk_norm: gains [head_dim] of the RMSNorm of queries and keys, and its epsilon.
    rotary, window, scale, softcap: as in append_and_attend.
    rounding: past and present hold its levels, int8.

    Returns [tokens, heads * head_dim] and the present blocks.
    """
    attributes: dict[str, Any] = {"num_heads": num_heads, "kv_num_heads": num_kv_heads}
    attributes["do_rotary"] = int(rotary is not None)
    if window is not None:
        attributes["local_window_size"] = window
    if scale is not None:
        attributes["scale"] = scale
    if softcap is not None:
        attributes["softcap"] = softcap
    query_gain = key_gain = None
    if qk_norm is not None:
        query_gain, key_gain, attributes["qk_norm_epsilon"] = qk_norm
    tables = rotary or (None, None)
    places = (run.cumulative_lengths, run.past_lengths, run.block_table)
    scales: tuple[Tensor | None, Tensor | None] = (None, None)
    if rounding is not None:
        attributes |= dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_CHANNEL")
        scales = (rounding.key_scale[0].float(), rounding.value_scale[0].float())
    # None: key and value, which are in qkv; no sink.
    inputs = (
        qkv,
        None,
        None,
        *past,
        *places,
        *tables,
        run.slot_mapping,
        None,
        query_gain,
        key_gain,
        *scales,
        run.bounds,
    )
    width = qkv.shape[1] * num_heads // (num_heads + 2 * num_kv_heads)
    out, keys, values = torch.onnx.ops.symbolic_multi_out(
        _OPERATOR,
        inputs,
        attributes,
        dtypes=(qkv.dtype, past[0].dtype, past[1].dtype),
        shapes=((qkv.shape[0], width), past[0].shape, past[1].shape),
        version=1,
    )
    return out, (keys, values)
