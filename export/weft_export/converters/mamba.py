"""Mamba (Gu and Dao 2023) and Falcon Mamba (TII 2024): selective state spaces alone."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil

import torch
from torch import Tensor

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import head_names, norm_names, read_taps, read_words
from weft_export.converters.lfm2 import taps_first
from weft_export.converters.llama import LLAMA
from weft_export.converters.sources import Names, Source, both, computed
from weft_export.families.state_spaces import StateSpacesConfig
from weft_export.layers.selective_state_space import SelectiveSizes

_LAYER, _THEIRS = "layers.{}", "backbone.layers.{}"
# Of training, of the first weights, and by which of its ways transformers computes the same.
_UNREAD = (
    "residual_in_fp32",
    "time_step_floor",
    "time_step_init_scheme",
    "time_step_max",
    "time_step_min",
    "time_step_scale",
    "use_associative_scan",
    "use_falcon_mambapy",
    "use_mambapy",
)
# Of released files, whose first code read them: it says the same again, or what its class did whatever they say.
_ONCE = ("fused_add_norm", "pad_vocab_size_multiple", "ssm_cfg")


def sizes(hf: HfCheckpoint) -> StateSpacesConfig:
    """Nothing bounds the length of a text, so the context is chosen."""
    return _sizes(hf, None)


def normed_sizes(hf: HfCheckpoint) -> StateSpacesConfig:
    """Return those of a Falcon Mamba, which norms within a layer."""
    return _sizes(hf, hf.fields.number("mixer_rms_eps", 1e-6))


def _sizes(hf: HfCheckpoint, inner_norm_eps: float | None) -> StateSpacesConfig:
    fields = hf.fields
    fields.skip(*_UNREAD, *_ONCE)
    fields.only("hidden_act", "silu")
    fields.only("rms_norm", True)
    # Of first weights too, but transformers 5.23 divides those of a file by it.
    fields.only("rescale_prenorm_residual", False)
    d_model, num_layers = fields.whole("hidden_size", 768), fields.whole("num_hidden_layers", 32)
    # As there: what says it goes before what it follows from. Of the released Falcon Mamba the two differ.
    inner = fields.whole("intermediate_size", fields.whole("expand", 2) * d_model)
    for name, value in (
        ("d_inner", inner),
        ("d_model", d_model),
        ("n_layer", num_layers),
    ):
        fields.only(name, value)
    given = fields.raw("time_step_rank")
    taps = read_taps(fields, "conv_kernel", 4)
    return StateSpacesConfig(
        vocab_size=fields.whole("vocab_size", 50280),
        max_tokens=hf.max_tokens(None),
        d_model=d_model,
        num_layers=num_layers,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        embeddings=read_words(hf, tied=True),
        selective=SelectiveSizes(
            d_inner=inner,
            d_state=fields.whole("state_size", 16),
            step_rank=ceil(d_model / 16) if given in (None, "auto") else fields.whole("time_step_rank"),
            taps=taps,
            convolution_bias=fields.flag("use_conv_bias", default=True),
            bias=fields.flag("use_bias", default=False),
            inner_norm_eps=inner_norm_eps,
        ),
    )


def names(config: StateSpacesConfig) -> Names:
    """Their names. Norms within a layer have no weights: they multiply by 1."""
    ours, theirs = f"{_LAYER}.recurrence", f"{_THEIRS}.mixer"
    assert config.selective is not None, "no layer is selective. This is a bug."
    sizes = config.selective
    table: dict[str, Source | str] = {
        **head_names(config, "backbone.embeddings"),
        **norm_names("norm", "backbone.norm_f"),
        **norm_names(f"{_LAYER}.norm", f"{_THEIRS}.norm"),
        **both(f"{ours}.input", f"{theirs}.in_proj"),
        **both(f"{ours}.output", f"{theirs}.out_proj"),
        f"{ours}.convolution.weight": computed(taps_first, f"{theirs}.conv1d.weight"),
        f"{ours}.convolution.bias": f"{theirs}.conv1d.bias",
        f"{ours}.selection.weight": f"{theirs}.x_proj.weight",
        f"{ours}.steps.weight": f"{theirs}.dt_proj.weight",
        f"{ours}.step_bias": f"{theirs}.dt_proj.bias",
        f"{ours}.rate": computed(_rate, f"{theirs}.A_log"),
        f"{ours}.skip": f"{theirs}.D",
    }
    for layer in range(config.num_layers if sizes.inner_norm_eps is not None else 0):
        for part, width in enumerate((sizes.step_rank, sizes.d_state, sizes.d_state)):
            name = f"layers.{layer}.recurrence.norms.{part}.weight"
            table[name] = computed(_ones(width), f"backbone.layers.{layer}.mixer.D")
    return table


def _rate(logarithms: Tensor) -> Tensor:
    return torch.exp(logarithms).t()


def _ones(width: int) -> Callable[[Tensor], Tensor]:
    return lambda skip: skip.new_ones(width)


MAMBA = replace(
    LLAMA, model_type="mamba", architectures=("MambaForCausalLM",), family="state_spaces", sizes=sizes, names=names
)
FALCON_MAMBA = replace(MAMBA, model_type="falcon_mamba", architectures=("FalconMambaForCausalLM",), sizes=normed_sizes)
CONVERTERS = (MAMBA, FALCON_MAMBA)
