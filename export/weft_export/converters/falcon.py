"""Falcon (Almazrouei et al. 2023): 7B and 40B turn their heads, and RefinedWeb's models have ALiBi."""

from dataclasses import replace

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import (
    attention_names,
    head_names,
    norm_names,
    read_activation,
    read_sizes,
    read_words,
    turned,
)
from weft_export.converters.sources import Names, Source, both, first_of
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Sublayers beside each other but for RefinedWeb's; heads that share keys and values with all others, or some."""
    fields = hf.fields
    fields.only("apply_residual_connection_post_layernorm", False)
    grouped = fields.flag("new_decoder_architecture", default=False)
    parallel = fields.flag("parallel_attn", default=True)
    if grouped and not parallel:
        raise fields.wrong("parallel_attn", "must be true where new_decoder_architecture is")
    fields.only("num_ln_in_parallel_attn", *((1, 2) if grouped else (1,)))
    style = Style(
        residual="parallel" if parallel else "pre",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=read_activation(fields, "activation", "gelu"),
        bias=fields.flag("bias", default=False),
    )
    alibi = fields.flag("alibi", default=False)
    called = {
        "hidden_size": "n_embed" if "n_embed" in fields else "hidden_size",
        "intermediate_size": "ffn_hidden_size",
        "num_key_value_heads": "num_kv_heads",
    }
    fields.skip("hidden_size")
    config = read_sizes(hf, style, read_words(hf, tied=True), called=called, turns=not alibi)
    shared = fields.flag("multi_query", default=True)
    if not grouped:
        # The other architecture is asked for the number. This one has one for all, or one for each.
        config = replace(config, num_kv_heads=1 if shared else config.num_heads)
    if not alibi:
        return turned(hf, config)
    # The bias is scaled like the scores, and rounded.
    fields.skip("rope_parameters", "rope_theta", "rope_scaling")
    stored = config.head_dim - (config.padding or 0)
    return replace(config, alibi=stored**-0.5, coarse_alibi=True)


def names(config: DecoderOnlyConfig) -> Names:
    """Their names. The rows of a group of heads lie together, with their keys and values at the end."""
    layer, theirs = "layers.{}", "transformer.h.{}"
    attention, group = f"{theirs}.self_attention", config.num_heads // config.num_kv_heads
    parallel = config.style.residual == "parallel"
    # Sublayers beside each other have a norm each, or one, which both of ours are then.
    second = ("ln_mlp", "input_layernorm") if parallel else ("post_attention_layernorm",)
    return {
        **head_names(config, "transformer.word_embeddings"),
        **norm_names("norm", "transformer.ln_f"),
        **_norms(f"{layer}.attention_norm", f"{theirs}.ln_attn", f"{theirs}.input_layernorm"),
        **_norms(f"{layer}.feed_forward_norm", *(f"{theirs}.{norm}" for norm in second)),
        **attention_names(
            config, [f"{attention}.query_key_value"], f"{attention}.dense", lambda heads: heads.grouped(group)
        ),
        **both(f"{layer}.feed_forward.up_proj", f"{theirs}.mlp.dense_h_to_4h"),
        **both(f"{layer}.feed_forward.down_proj", f"{theirs}.mlp.dense_4h_to_h"),
    }


def _norms(ours: str, *theirs: str) -> dict[str, Source | str]:
    return {f"{ours}.{part}": first_of(*(f"{name}.{part}" for name in theirs)) for part in ("weight", "bias")}


FALCON = Converter(
    model_type="falcon",
    architectures=("FalconForCausalLM",),
    family="decoder_only",
    sizes=sizes,
    names=names,
    prefix="transformer.",
    ignored=(r".*\.rotary_emb\.inv_freq",),
    bias="embeddings.bias",
)
CONVERTERS = (FALCON,)
