"""Granite 4 (IBM 2025): Granite 3's multipliers. H has Mamba 2's layers, and attention without positions in some."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import (
    attention_names,
    head_names,
    norm_names,
    qkv_of,
    read_sizes,
    read_taps,
    turned,
)
from weft_export.converters.fields import Fields
from weft_export.converters.granite import granite_style, granite_words
from weft_export.converters.lfm2 import taps_first
from weft_export.converters.llama import LLAMA
from weft_export.converters.mixtures import merged_expert_names, mixed
from weft_export.converters.sources import Names, both, computed, half
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.families.hybrid import HybridConfig
from weft_export.layers.state_space import StateSpaceSizes

_SHARED = "shared_intermediate_size"
_LAYER, _THEIRS = "layers.{}", "model.layers.{}"
_ATTENTION = ("full_attention", "attention")
_RECURRENCE = ("linear_attention", "mamba")
_OF_STATES = (
    "n_heads",
    "d_head",
    "n_groups",
    "d_state",
    "d_conv",
    "expand",
    "chunk_size",
    "conv_bias",
    "proj_bias",
)


def sizes(hf: HfCheckpoint) -> HybridConfig:
    """Layers attend, or keep a state."""
    config = _decoder(hf)
    attends = _attends(hf.fields, config.num_layers)
    return HybridConfig(**vars(config), attends=attends, state_space=_state_space(hf.fields, config.d_model))


def attending_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """All layers attend. What is said of states is of none."""
    config = _decoder(hf)
    _attends(hf.fields, config.num_layers)
    hf.fields.skip(*(f"mamba_{name}" for name in _OF_STATES), "time_step_limit", "time_step_min", "time_step_max")
    return config


def _decoder(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Mixtures of experts beside a shared network, or the shared network alone."""
    fields = hf.fields
    # The released configs say both, and transformers reads neither.
    fields.skip("init_method")
    fields.only("normalization_function", "rmsnorm")
    style, words = granite_style(hf), granite_words(hf)
    called, absent = {}, {"intermediate_size": 11008}
    if fields.whole("num_local_experts", 8):
        style = replace(mixed(hf, style, "num_local_experts", 8, 2), d_shared=fields.whole(_SHARED, 1024))
    else:
        fields.skip("intermediate_size", "num_experts_per_tok", "output_router_logits", "router_aux_loss_coef")
        called, absent = {"intermediate_size": _SHARED}, {"intermediate_size": 1024}
    return _placed(hf, read_sizes(hf, style, words, called=called, absent=absent))


def _placed(hf: HfCheckpoint, config: DecoderOnlyConfig) -> DecoderOnlyConfig:
    """Return the sizes with a rotation, if there is one: position_embedding_type is rope, or there are no positions."""
    kind = hf.fields.raw("position_embedding_type")
    if kind == "rope":
        return turned(hf, config)
    hf.fields.skip("rope_parameters", "rope_theta", "rope_scaling")
    if kind not in (None, "nope"):
        raise hf.fields.wrong("position_embedding_type", "is not supported; only rope, nope and null are")
    return config


def _attends(fields: Fields, num_layers: int) -> tuple[int, ...]:
    name = "layers_block_type" if "layers_block_type" in fields else "layer_types"
    types = fields.list(name, [_RECURRENCE[0]] * num_layers)
    known = (*_ATTENTION, *_RECURRENCE)
    if len(types) != num_layers or not all(each in known for each in types):
        raise fields.wrong(name, f"must have {' or '.join(known)} for each of {num_layers} layers")
    if not any(each in _ATTENTION for each in types):
        raise fields.wrong(name, f"has no {_ATTENTION[0]}: a model without any attention is not supported")
    return tuple(int(each in _ATTENTION) for each in types)


def _state_space(fields: Fields, d_model: int) -> StateSpaceSizes:
    # How long a piece is that transformers reads at once.
    fields.skip("mamba_chunk_size")
    check_steps(fields)
    heads, inner = fields.whole("mamba_n_heads", 128), fields.whole("mamba_expand", 2) * d_model
    given = fields.raw("mamba_d_head")
    d_head = inner // max(heads, 1) if given in (None, "auto") else fields.whole("mamba_d_head")
    if heads * d_head != inner:
        raise fields.wrong("mamba_n_heads", f"times a head's {d_head} must be {inner}")
    groups = fields.whole("mamba_n_groups", 1)
    if not groups or heads % groups:
        raise fields.wrong("mamba_n_groups", f"must divide the number of heads, {heads}")
    taps = read_taps(fields, "mamba_d_conv", 4)
    return StateSpaceSizes(
        num_state_heads=heads,
        d_state_head=d_head,
        d_state=fields.whole("mamba_d_state", 256),
        num_state_groups=groups,
        taps=taps,
        convolution_bias=fields.flag("mamba_conv_bias", default=True),
        bias=fields.flag("mamba_proj_bias", default=False),
    )


def check_steps(fields: Fields) -> None:
    """Refuse limits of steps: transformers follows them in prompts, and not where it writes."""
    limits = fields.raw("time_step_limit")
    if limits is not None and limits not in ([0.0, float("inf")], [0.0, {"__float__": "Infinity"}]):
        raise fields.wrong("time_step_limit", "is not supported; only [0, infinity] is")


def names(config: HybridConfig) -> Names:
    """The same for what keeps a state."""
    return {
        **attending_names(config),
        **norm_names(f"{_LAYER}.recurrence_norm", f"{_THEIRS}.input_layernorm"),
        **state_space_names(config.state_space, f"{_LAYER}.recurrence", f"{_THEIRS}.mamba"),
    }


def attending_names(config: DecoderOnlyConfig) -> Names:
    """Llama's for what attends; gate_proj and up_proj of a network lie in one tensor."""
    is_mixture = config.style.num_experts is not None
    ours, shared = f"{_LAYER}.feed_forward{'.shared' if is_mixture else ''}", f"{_THEIRS}.shared_mlp"
    return {
        **(merged_expert_names(config) if is_mixture else {}),
        **head_names(config, "model.embed_tokens"),
        **norm_names("norm", "model.norm"),
        **norm_names(f"{_LAYER}.attention_norm", f"{_THEIRS}.input_layernorm"),
        **norm_names(f"{_LAYER}.feed_forward_norm", f"{_THEIRS}.post_attention_layernorm"),
        **attention_names(config, qkv_of(f"{_THEIRS}.self_attn"), f"{_THEIRS}.self_attn.o_proj"),
        f"{ours}.gate_proj.weight": half(0, f"{shared}.input_linear.weight"),
        f"{ours}.up_proj.weight": half(1, f"{shared}.input_linear.weight"),
        f"{ours}.down_proj.weight": f"{shared}.output_linear.weight",
    }


def state_space_names(sizes: StateSpaceSizes | None, ours: str, theirs: str) -> Names:
    """Return the sources of all layers' state spaces."""
    assert sizes is not None, "no layer has a state space. This is a bug."
    groups = sizes.num_state_groups

    def grouped(weight: Tensor) -> Tensor:
        return weight.view(groups, -1)

    return {
        **both(f"{ours}.input", f"{theirs}.in_proj"),
        **both(f"{ours}.output", f"{theirs}.out_proj"),
        f"{ours}.convolution.weight": computed(taps_first, f"{theirs}.conv1d.weight"),
        f"{ours}.convolution.bias": f"{theirs}.conv1d.bias",
        f"{ours}.step_bias": f"{theirs}.dt_bias",
        f"{ours}.rate": computed(torch.exp, f"{theirs}.A_log"),
        f"{ours}.skip": f"{theirs}.D",
        f"{ours}.norm.weight": computed(grouped, f"{theirs}.norm.weight"),
    }


def all_attend(config: Mapping[str, Any]) -> bool:
    """Whether no layer of a config.json keeps a state."""
    types = config.get("layers_block_type", config.get("layer_types"))
    return isinstance(types, list) and bool(types) and all(each in _ATTENTION for each in types)


GRANITE_HYBRID = replace(
    LLAMA,
    model_type="granitemoehybrid",
    architectures=("GraniteMoeHybridForCausalLM",),
    family="hybrid",
    sizes=sizes,
    names=names,
    is_for=lambda config: not all_attend(config),
)
GRANITE_4 = replace(
    GRANITE_HYBRID, family="decoder_only", sizes=attending_sizes, names=attending_names, is_for=all_attend
)
CONVERTERS = (GRANITE_HYBRID, GRANITE_4)
