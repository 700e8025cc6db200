"""BLOOM (Workshop et al. 2022): ALiBi instead of positions, and a norm over the words."""

from dataclasses import replace

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import attention_names, head_names, norm_names, read_sizes, read_words
from weft_export.converters.sources import Names, both
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

# What its training code had. transformers reads none of them.
_OF_TRAINING = (
    "attention_softmax_in_fp32",
    "bias_dropout_fusion",
    "masked_softmax_fusion",
    "n_inner",
    "offset_alibi",
    "seq_length",
    "skip_bias_add",
    "skip_bias_add_qkv",
)


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """GPT-2's layers."""
    fields = hf.fields
    fields.only("apply_residual_connection_post_layernorm", False)
    # With more parts than one, some sums have another order.
    fields.skip("slow_but_exact", *_OF_TRAINING)
    norm_eps = fields.number("layer_norm_epsilon", 1e-5)
    style = Style(norm_eps=norm_eps, activation="gelu_tanh")
    called = {
        "hidden_size": "n_embed" if "n_embed" in fields else "hidden_size",
        "num_attention_heads": "n_head" if "n_head" in fields else "num_attention_heads",
        "num_hidden_layers": "n_layer" if "n_layer" in fields else "num_hidden_layers",
    }
    fields.skip("hidden_size")
    words = read_words(hf, tied=True, norm=True, norm_eps=norm_eps)
    return replace(read_sizes(hf, style, words, called=called, turns=False), alibi=1.0)


def names(config: DecoderOnlyConfig) -> Names:
    """Their names; each head has its rows of queries, keys and values together."""
    layer, theirs = "layers.{}", "transformer.h.{}"
    attention = f"{theirs}.self_attention"
    return {
        **head_names(config, "transformer.word_embeddings"),
        **both("embeddings.norm", "transformer.word_embeddings_layernorm"),
        **norm_names("norm", "transformer.ln_f"),
        **norm_names(f"{layer}.attention_norm", f"{theirs}.input_layernorm"),
        **norm_names(f"{layer}.feed_forward_norm", f"{theirs}.post_attention_layernorm"),
        **attention_names(
            config, [f"{attention}.query_key_value"], f"{attention}.dense", lambda heads: heads.grouped(1)
        ),
        **both(f"{layer}.feed_forward.up_proj", f"{theirs}.mlp.dense_h_to_4h"),
        **both(f"{layer}.feed_forward.down_proj", f"{theirs}.mlp.dense_4h_to_h"),
    }


BLOOM = Converter(
    model_type="bloom",
    architectures=("BloomForCausalLM",),
    family="decoder_only",
    sizes=sizes,
    names=names,
    prefix="transformer.",
    bias="embeddings.bias",
)
CONVERTERS = (BLOOM,)
