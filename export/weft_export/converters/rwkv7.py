"""RWKV 7 (Peng et al. 2025), under the names of flash-linear-attention's class RWKV7ForCausalLM.

Its authors' own files have other names for the same: see rwkv_file.py.
"""

import torch
from torch import Tensor
from torch.nn import functional

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import norm_names, read_words
from weft_export.converters.sources import Names, Source, both, computed
from weft_export.families.rwkv7 import Rwkv7Config
from weft_export.layers.time_mix import TimeMixSizes

_LAYER, _THEIRS = "layers.{}", "model.layers.{}"
# Of training, and by which of its kernels that library computes the same.
_UNREAD = ("attn_mode", "fuse_cross_entropy", "fuse_linear_cross_entropy", "fuse_norm", "use_l2warp")
# Of layers that attend, of which there are none here.
_OF_ATTENTION = ("max_position_embeddings",)
_HEAD = 64


def sizes(hf: HfCheckpoint) -> Rwkv7Config:
    """Nothing bounds the length of a text, so the context is chosen."""
    fields = hf.fields
    fields.skip(*_UNREAD, *_OF_ATTENTION)
    fields.only("hidden_act", "sqrelu")
    fields.only("norm_first", True)
    fields.only("norm_bias", True)
    fields.only("tie_word_embeddings", False)
    fields.only("attn", None)
    d_model, num_layers = fields.whole("hidden_size", 2048), fields.whole("num_hidden_layers", 24)
    given = fields.whole_or_null("num_heads", None)
    head = fields.whole_or_null("head_dim", d_model // given if given else _HEAD) or 0
    heads = d_model // max(head, 1)
    if not head or heads * head != d_model or given not in (None, heads):
        raise fields.wrong("head_dim", "must divide hidden_size, and num_heads be the quotient")
    if fields.raw("value_dim") not in (None, d_model, [d_model] * num_layers):
        raise fields.wrong("value_dim", f"must be hidden_size, {d_model}")
    ratio, d_ff = fields.raw("hidden_ratio"), fields.whole_or_null("intermediate_size", None)
    if d_ff is None:
        ratio = 4 if ratio is None else fields.number("hidden_ratio")
        d_ff = -(-int(d_model * ratio) // 32) * 32
    norm_eps = fields.number("norm_eps", 1e-5)
    return Rwkv7Config(
        vocab_size=fields.whole("vocab_size", 32000),
        max_tokens=hf.max_tokens(None),
        d_model=d_model,
        d_ff=d_ff,
        num_layers=num_layers,
        norm_eps=norm_eps,
        embeddings=read_words(hf, tied=False),
        time_mix=TimeMixSizes(
            num_state_heads=heads,
            d_state_head=head,
            decay_rank=fields.whole("decay_low_rank_dim", 64),
            rate_rank=fields.whole("a_low_rank_dim", 64),
            value_rank=fields.whole("v_low_rank_dim", 16),
            gate_rank=fields.whole("gate_low_rank_dim", 128),
            inner_norm_eps=head * norm_eps,
        ),
    )


def names(config: Rwkv7Config) -> Names:
    """Their names. The norm behind the words is taken into their table, as its authors' code does."""
    time, theirs = f"{_LAYER}.time_mix", f"{_THEIRS}.attn"
    first = f"{_THEIRS.format(0)}.pre_norm"

    def normed(table: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm(table, weight.shape, weight, bias, config.norm_eps)

    table: dict[str, Source | str] = {
        "embeddings.tokens.weight": computed(normed, "model.embeddings.weight", f"{first}.weight", f"{first}.bias"),
        "embeddings.projection.weight": "lm_head.weight",
        # No file has it: it holds the tokens that are never written.
        "embeddings.bias": computed(lambda: torch.zeros(config.vocab_size)),
        **norm_names("norm", "model.norm"),
        **norm_names(f"{_LAYER}.time_norm", f"{_THEIRS}.attn_norm"),
        **norm_names(f"{_LAYER}.channel_norm", f"{_THEIRS}.ffn_norm"),
        f"{time}.mixing": computed(_below_each_other, *(f"{theirs}.x_{each}" for each in "rwkvag")),
        f"{time}.forgotten": computed(torch.flatten, f"{theirs}.k_k"),
        f"{time}.rate_share": computed(torch.flatten, f"{theirs}.k_a"),
        f"{time}.bonus": f"{theirs}.r_k",
        f"{time}.norm_weight": f"{theirs}.g_norm.weight",
        f"{time}.norm_bias": f"{theirs}.g_norm.bias",
        f"{_LAYER}.channel_mix.mixing": computed(torch.flatten, f"{_THEIRS}.ffn.x_k"),
        f"{_LAYER}.channel_mix.feed_forward.up_proj.weight": f"{_THEIRS}.ffn.key.weight",
        f"{_LAYER}.channel_mix.feed_forward.down_proj.weight": f"{_THEIRS}.ffn.value.weight",
    }
    for our, their in {"receptance": "r", "key": "k", "value": "v", "output": "o"}.items():
        table[f"{time}.{our}.weight"] = f"{theirs}.{their}_proj.weight"
    for our, their in {"decay": "w", "rate": "a", "value_share": "v", "gate": "g"}.items():
        table |= both(f"{time}.{our}.down_proj", f"{theirs}.{their}_lora.lora.0")
        table |= both(f"{time}.{our}.up_proj", f"{theirs}.{their}_lora.lora.2")
    return table


def _below_each_other(*vectors: Tensor) -> Tensor:
    return torch.stack([vector.flatten() for vector in vectors])


RWKV7 = Converter(
    model_type="rwkv7",
    architectures=("RWKV7ForCausalLM",),
    family="rwkv7",
    sizes=sizes,
    names=names,
    bias="embeddings.bias",
    # Files of its authors may have them; no code reads them, because the first layer has the values that others share.
    ignored=(r"model\.layers\.0\.attn\.v_lora\..*",),
)
CONVERTERS = (RWKV7,)
