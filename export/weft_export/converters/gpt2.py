"""GPT-2 (Radford et al. 2019), and GPT-BigCode, which is StarCoder's (Li et al. 2023)."""

from dataclasses import replace

from torch import Tensor

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import (
    attention_names,
    head_names,
    norm_names,
    read_activation,
    read_sizes,
    read_words,
)
from weft_export.converters.heads import HeadLayout, Split
from weft_export.converters.sources import Names, both, from_row, transposed
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

CALLED = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
# What these are for has another head.
SUMMARY = tuple(f"summary_{each}" for each in ("type", "use_proj", "activation", "proj_to_labels", "first_dropout"))


# What the first code for StarCoder was told of its buffers.
_BUFFERS = ("inference_runner", "max_batch_size", "max_sequence_length", "pad_key_length", "pre_allocate_kv_cache")


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """LayerNorm before each sublayer, GELU, biases everywhere, a vector for each place."""
    hf.fields.only("scale_attn_by_inverse_layer_idx", False)
    # Scores are float32 here anyway.
    hf.fields.skip("reorder_and_upcast_attn")
    return _sizes(hf, "gelu_new")


def bigcode_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """The same, with one head of keys and of values for all of queries, or with as many."""
    fields = hf.fields
    fields.skip("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "validate_runner_input", *_BUFFERS)
    config = _sizes(hf, "gelu_pytorch_tanh")
    config = replace(config, num_kv_heads=1 if fields.flag("multi_query", default=True) else config.num_heads)
    fields.only("num_key_value_heads", config.num_kv_heads)
    return config


def _sizes(hf: HfCheckpoint, activation: str) -> DecoderOnlyConfig:
    fields = hf.fields
    fields.only("add_cross_attention", False)
    fields.skip("n_ctx", *SUMMARY)
    style = Style(
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=read_activation(fields, "activation_function", activation),
        scale=None if fields.flag("scale_attn_weights", default=True) else 1.0,
    )
    words = read_words(hf, tied=True, positions=True)
    return read_sizes(
        hf, style, words, called=CALLED, absent={"max_position_embeddings": 1024}, longest=True, turns=False
    )


_LAYER, _THEIRS = "layers.{}", "transformer.h.{}"
_QKV, _OUTPUT, _UP, _DOWN = (f"{_THEIRS}.{name}" for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"))


def names(config: DecoderOnlyConfig) -> Names:
    """Their names. Matrices are stored as [in, out]."""
    return {
        **_shared(config),
        **attention_names(config, [_QKV], _OUTPUT, _thirds, transposed=True),
        f"{_LAYER}.feed_forward.up_proj.weight": transposed(f"{_UP}.weight"),
        f"{_LAYER}.feed_forward.up_proj.bias": f"{_UP}.bias",
        f"{_LAYER}.feed_forward.down_proj.weight": transposed(f"{_DOWN}.weight"),
        f"{_LAYER}.feed_forward.down_proj.bias": f"{_DOWN}.bias",
    }


def bigcode_names(config: DecoderOnlyConfig) -> Names:
    """The same names. Each head has its rows of queries, keys and values together, unless all share keys and values."""
    split = None if config.num_kv_heads < config.num_heads else _each_head
    return {
        **_shared(config),
        **attention_names(config, [_QKV], _OUTPUT, split),
        **both(f"{_LAYER}.feed_forward.up_proj", _UP),
        **both(f"{_LAYER}.feed_forward.down_proj", _DOWN),
    }


def _shared(config: DecoderOnlyConfig) -> Names:
    return {
        **head_names(config, "transformer.wte"),
        "embeddings.positions.weight": from_row(0, "transformer.wpe.weight", config.max_tokens),
        **norm_names("norm", "transformer.ln_f"),
        **norm_names(f"{_LAYER}.attention_norm", f"{_THEIRS}.ln_1"),
        **norm_names(f"{_LAYER}.feed_forward_norm", f"{_THEIRS}.ln_2"),
    }


def _each_head(heads: HeadLayout) -> Split:
    return heads.grouped(1)


def _thirds(_: HeadLayout) -> Split:
    def split(tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # A bias has one axis, which is the last of a matrix too.
        query, key, value = tensor.movedim(-1, 0).chunk(3)
        return query, key, value

    return split


GPT2 = Converter(
    model_type="gpt2",
    architectures=("GPT2LMHeadModel",),
    family="decoder_only",
    sizes=sizes,
    names=names,
    prefix="transformer.",
    ignored=(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",),
    bias="embeddings.bias",
)
GPT_BIGCODE = replace(
    GPT2,
    model_type="gpt_bigcode",
    architectures=("GPTBigCodeForCausalLM",),
    sizes=bigcode_sizes,
    names=bigcode_names,
)
CONVERTERS = (GPT2, GPT_BIGCODE)
