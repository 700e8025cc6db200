"""Mamba 2 (Dao and Gu 2024): state spaces alone, as Granite 4 H has between layers that attend."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import head_names, norm_names, read_taps, read_words
from weft_export.converters.granite_hybrid import check_steps, state_space_names
from weft_export.converters.llama import LLAMA
from weft_export.converters.sources import Names
from weft_export.families.state_spaces import StateSpacesConfig
from weft_export.layers.state_space import StateSpaceSizes

_LAYER, _THEIRS = "layers.{}", "backbone.layers.{}"
# Of training, of the first weights, and how long a piece is that transformers reads at once.
_UNREAD = (
    "chunk_size",
    "residual_in_fp32",
    "time_step_floor",
    "time_step_max",
    "time_step_min",
    "time_step_rank",
)


def sizes(hf: HfCheckpoint) -> StateSpacesConfig:
    """Nothing bounds the length of a text, so the context is chosen."""
    fields = hf.fields
    fields.skip(*_UNREAD)
    fields.only("hidden_act", "silu")
    # transformers 5.23 divides weights of a file by it, as those of a Mamba.
    fields.only("rescale_prenorm_residual", False)
    # Of its first class, which did what it does now whatever the second of them said.
    fields.only("rms_norm", True)
    fields.skip("norm_before_gate")
    check_steps(fields)
    d_model, heads, d_head = (
        fields.whole("hidden_size", 4096),
        fields.whole("num_heads", 128),
        fields.whole("head_dim", 64),
    )
    if heads * d_head != fields.whole("expand", 2) * d_model:
        raise fields.wrong("num_heads", f"times head_dim, {d_head}, must be expand times hidden_size")
    groups = fields.whole("n_groups", 8)
    if not groups or heads % groups:
        raise fields.wrong("n_groups", f"must divide the number of heads, {heads}")
    taps = read_taps(fields, "conv_kernel", 4)
    return StateSpacesConfig(
        vocab_size=fields.whole("vocab_size", 32768),
        max_tokens=hf.max_tokens(None),
        d_model=d_model,
        num_layers=fields.whole("num_hidden_layers", 64),
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        embeddings=read_words(hf, tied=False),
        state_space=StateSpaceSizes(
            num_state_heads=heads,
            d_state_head=d_head,
            d_state=fields.whole("state_size", 128),
            num_state_groups=groups,
            taps=taps,
            convolution_bias=fields.flag("use_conv_bias", default=True),
            bias=fields.flag("use_bias", default=False),
        ),
    )


def names(config: StateSpacesConfig) -> Names:
    """Their names."""
    return {
        **head_names(config, "backbone.embeddings"),
        **norm_names("norm", "backbone.norm_f"),
        **norm_names(f"{_LAYER}.norm", f"{_THEIRS}.norm"),
        **state_space_names(config.state_space, f"{_LAYER}.recurrence", f"{_THEIRS}.mixer"),
    }


MAMBA2 = replace(
    LLAMA, model_type="mamba2", architectures=("Mamba2ForCausalLM",), family="state_spaces", sizes=sizes, names=names
)
CONVERTERS = (MAMBA2,)
