"""GPT-J (Wang and Komatsuzaki 2021), and CodeGen (Nijkamp et al. 2022), which is built like it."""

from dataclasses import replace

import torch
from torch import Tensor

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import (
    attention_names,
    head_names,
    norm_names,
    padded,
    qkv_of,
    read_activation,
    read_sizes,
    read_words,
)
from weft_export.converters.gpt2 import CALLED, SUMMARY
from weft_export.converters.heads import HeadLayout, Split
from weft_export.converters.sources import Names, both
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.positions import Rope
from weft_export.layers.style import Style

_LAYER, _THEIRS = "layers.{}", "transformer.h.{}"
# CodeGen's matrix was cut for so many TPU cores: each has its heads' queries, then values, then keys.
_CORES = 4


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Attention and feed-forward beside each other after one norm; the first numbers of each head are turned."""
    fields = hf.fields
    # transformers reads none of these.
    for name in ("rotary", "scale_attn_weights"):
        fields.only(name, True)
    fields.skip(*SUMMARY)
    style = Style(
        residual="parallel",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=read_activation(fields, "activation_function", "gelu_new"),
        bias=False,
        feed_forward_bias=True,
    )
    words = replace(read_words(hf, tied=False), bias=True)
    config = read_sizes(hf, style, words, called=CALLED, absent={"max_position_embeddings": 2048}, longest=True)
    head_dim, turned = config.head_dim - (config.padding or 0), fields.whole_or_null("rotary_dim", 64)
    if turned is None or turned % 2 or not 2 <= turned <= head_dim:
        raise fields.wrong("rotary_dim", f"must be even and at most {head_dim}, as many numbers as a head has")
    # Nor a theta.
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, turned, 2) / turned)
    still = head_dim // 2 - turned // 2
    return replace(config, rotations=(padded(Rope((*frequencies.tolist(), *(0.0,) * still)), config),))


def codegen_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """The same."""
    config = sizes(hf)
    hf.fields.skip("n_ctx")
    if config.num_heads % _CORES:
        raise hf.fields.wrong("n_head", f"must be a multiple of {_CORES}")
    return config


def names(config: DecoderOnlyConfig) -> Names:
    """GPT-J's names. Heads are turned in pairs of neighbours."""
    return _named(config, attention_names(config, qkv_of(f"{_THEIRS}.attn"), _OUTPUT, neighbours=True))


def codegen_names(config: DecoderOnlyConfig) -> Names:
    """Those of CodeGen, which has queries, keys and values in one matrix."""
    return _named(config, attention_names(config, [f"{_THEIRS}.attn.qkv_proj"], _OUTPUT, _by_core, neighbours=True))


_OUTPUT = f"{_THEIRS}.attn.out_proj"


def _named(config: DecoderOnlyConfig, attention: Names) -> Names:
    """Both our norms are their one."""
    return {
        **head_names(config, "transformer.wte"),
        "embeddings.bias": "lm_head.bias",
        **norm_names("norm", "transformer.ln_f"),
        **norm_names(f"{_LAYER}.attention_norm", f"{_THEIRS}.ln_1"),
        **norm_names(f"{_LAYER}.feed_forward_norm", f"{_THEIRS}.ln_1"),
        **attention,
        **both(f"{_LAYER}.feed_forward.up_proj", f"{_THEIRS}.mlp.fc_in"),
        **both(f"{_LAYER}.feed_forward.down_proj", f"{_THEIRS}.mlp.fc_out"),
    }


def _by_core(_: HeadLayout) -> Split:
    def split(tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cores = tensor.reshape(_CORES, 3, -1, *tensor.shape[1:])
        query, value, key = (cores[:, part].reshape(-1, *tensor.shape[1:]) for part in range(3))
        return query, key, value

    return split


GPTJ = Converter(
    model_type="gptj",
    architectures=("GPTJForCausalLM",),
    family="decoder_only",
    sizes=sizes,
    names=names,
    prefix="transformer.",
    ignored=(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias|embed_positions|causal_mask)",),
    bias="embeddings.bias",
)
CODEGEN = replace(
    GPTJ, model_type="codegen", architectures=("CodeGenForCausalLM",), sizes=codegen_sizes, names=codegen_names
)
CONVERTERS = (GPTJ, CODEGEN)
