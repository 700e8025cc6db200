"""GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023)."""

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
from weft_export.converters.sources import Names, both
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_ABSENT = {"intermediate_size": 24576}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Attention and feed-forward beside each other, each with its norm, and a quarter of each head turned."""
    fields = hf.fields
    fields.skip("is_decoder")
    style = Style(
        residual="parallel" if fields.flag("use_parallel_residual", default=True) else "pre",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=read_activation(fields, default="gelu"),
        bias=fields.flag("attention_bias", default=True),
        feed_forward_bias=True,
    )
    theta, share = fields.number("rotary_emb_base", 10000.0), fields.number("rotary_pct", 0.25)
    # Its class does not look for them under the names that others have.
    for name, value in ("rope_theta", theta), ("partial_rotary_factor", share):
        if name not in fields.part("rope_parameters"):
            fields.only(name, value)
    config = read_sizes(hf, style, read_words(hf, tied=False), absent=_ABSENT)
    return turned(hf, config, theta=theta, share=share)


def names(config: DecoderOnlyConfig) -> Names:
    """Their names; each head has its rows of queries, keys and values together."""
    layer, theirs = "layers.{}", "gpt_neox.layers.{}"
    query_key_value, dense = f"{theirs}.attention.query_key_value", f"{theirs}.attention.dense"
    return {
        **head_names(config, "gpt_neox.embed_in", "embed_out"),
        **norm_names("norm", "gpt_neox.final_layer_norm"),
        **norm_names(f"{layer}.attention_norm", f"{theirs}.input_layernorm"),
        **norm_names(f"{layer}.feed_forward_norm", f"{theirs}.post_attention_layernorm"),
        **attention_names(config, [query_key_value], dense, lambda heads: heads.grouped(1)),
        **both(f"{layer}.feed_forward.up_proj", f"{theirs}.mlp.dense_h_to_4h"),
        **both(f"{layer}.feed_forward.down_proj", f"{theirs}.mlp.dense_4h_to_h"),
    }


GPT_NEOX = Converter(
    model_type="gpt_neox",
    architectures=("GPTNeoXForCausalLM",),
    family="decoder_only",
    sizes=sizes,
    names=names,
    ignored=(r".*\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",),
    bias="embeddings.bias",
)
CONVERTERS = (GPT_NEOX,)
