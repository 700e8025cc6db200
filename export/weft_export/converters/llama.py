"""Llama 1 to 3 (Touvron et al. 2023; Grattafiori et al. 2024), and what is built like it: SmolLM, many others.

Below it stand the kinds that say in what they differ, and the bodies of such decoders that embed texts.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import (
    attention_names,
    gated_names,
    head_names,
    llama_style,
    norm_names,
    qkv_of,
    read_activation,
    turned_sizes,
    windowed,
)
from weft_export.converters.sources import Names, both, layer_names
from weft_export.families.decoder_only import NONE, DecoderOnlyConfig
from weft_export.layers.style import Style

if TYPE_CHECKING:
    from weft_export.families.decoder_embedder import DecoderEmbedderConfig

_LAYER, _THEIRS = "layers.{}", "model.layers.{}"


def llama_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """RMSNorm before each sublayer, SwiGLU, heads that share keys and values, rotary positions."""
    fields = hf.fields
    fields.only("rope_interleaved", False)
    return turned_sizes(hf, _with_biases(hf), absent={"intermediate_size": 11008})


def _with_biases(hf: HfCheckpoint) -> Style:
    fields = hf.fields
    attention, feed_forward = fields.flag("attention_bias", default=False), fields.flag("mlp_bias", default=False)
    return llama_style(hf, bias=attention, feed_forward_bias=feed_forward)


def llama_names(config: DecoderOnlyConfig, *, neighbours: bool = False) -> Names:
    """Their names; queries, keys and values lie below each other in our one matrix.

    neighbours: heads are turned in pairs of neighbours, unlike Llama's in these files.
    """
    return {
        **head_names(config, "model.embed_tokens"),
        **norm_names("norm", "model.norm"),
        **norm_names(f"{_LAYER}.attention_norm", f"{_THEIRS}.input_layernorm"),
        **norm_names(f"{_LAYER}.feed_forward_norm", f"{_THEIRS}.post_attention_layernorm"),
        **attention_names(config, qkv_of(f"{_THEIRS}.self_attn"), f"{_THEIRS}.self_attn.o_proj", neighbours=neighbours),
        **gated_names(f"{_THEIRS}.mlp"),
    }


def mistral_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Mistral (Jiang et al. 2023): without biases, and with a window in all layers or in none."""
    config, window = _mistral_sizes(hf)
    return windowed(hf, config, window, lambda _: window is not None, typed=False)


def ministral_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Ministral (Mistral AI 2024): Mistral's layers, of which some have a window."""
    config, window = _mistral_sizes(hf)
    return windowed(hf, config, window, lambda _: window is not None)


def _mistral_sizes(hf: HfCheckpoint) -> tuple[DecoderOnlyConfig, int | None]:
    absent = {"num_key_value_heads": 8, "intermediate_size": 14336}
    # null is no window, and nothing at all is the first model's.
    return turned_sizes(hf, llama_style(hf), absent=absent), hf.fields.whole_or_null("sliding_window", 4096)


_QWEN_ABSENT = {"num_key_value_heads": 32, "intermediate_size": 22016}


def qwen2_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Qwen 2 and 2.5 (Yang et al. 2024): queries, keys and values have biases."""
    hf.fields.only("use_mrope", False)
    return windowed_later(hf, turned_sizes(hf, llama_style(hf, qkv_bias=True), absent=_QWEN_ABSENT))


def qwen3_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Qwen 3 (Yang et al. 2025): each head of queries and keys passes an RMSNorm."""
    bias = hf.fields.flag("attention_bias", default=False)
    style = llama_style(hf, qk_norm=True, bias=bias, feed_forward_bias=False)
    return windowed_later(hf, turned_sizes(hf, style, absent={**_QWEN_ABSENT, "head_dim": 128}))


def qwen3_names(config: DecoderOnlyConfig) -> Names:
    """Llama's, and the norms of heads."""
    ours, theirs = f"{_LAYER}.attention.qk_norm", f"{_THEIRS}.self_attn"
    return {
        **llama_names(config),
        f"{ours}.query.weight": f"{theirs}.q_norm.weight",
        f"{ours}.key.weight": f"{theirs}.k_norm.weight",
    }


def windowed_later(hf: HfCheckpoint, config: DecoderOnlyConfig, usual: int = 28) -> DecoderOnlyConfig:
    """A window in the layers from max_window_layers on, if there is one at all. usual: where nothing says it."""
    fields = hf.fields
    first, window = fields.whole("max_window_layers", usual), fields.whole_or_null("sliding_window", 4096)
    if not fields.flag("use_sliding_window", default=False):
        window = None
    return windowed(hf, config, window, lambda layer: window is not None and layer >= first)


def smollm3_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """SmolLM 3 (Hugging Face 2025): no positions at all in every fourth layer.

    no_rope_layers has 1 for a layer that turns its heads, in spite of its name.
    """
    fields = hf.fields
    # The released config has it, and transformers does not read it.
    fields.skip("max_window_layers")
    absent = {"num_key_value_heads": 4, "intermediate_size": 11008}
    config = turned_sizes(hf, _with_biases(hf), tied=True, absent=absent, theta=2e6)
    every = max(fields.whole("no_rope_layer_interval", 4), 1)
    turns = fields.list("no_rope_layers", [int((layer + 1) % every != 0) for layer in range(config.num_layers)])
    if len(turns) < config.num_layers or not all(each in (0, 1) for each in turns):
        raise fields.wrong("no_rope_layers", f"must have 0 or 1 for each of {config.num_layers} layers")
    config = replace(config, rotation_of=tuple(0 if each else NONE for each in turns[: config.num_layers]))
    window = fields.whole_or_null("sliding_window", None)
    if not fields.flag("use_sliding_window", default=False):
        window = None
    return windowed(hf, config, window, lambda layer: window is not None and not turns[layer])


def seed_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Seed OSS (ByteDance 2025): Llama's layers; queries, keys and values have biases."""
    fields = hf.fields
    style = llama_style(
        hf,
        qkv_bias=fields.flag("attention_bias", default=True),
        output_bias=fields.flag("attention_out_bias", default=False),
        feed_forward_bias=fields.flag("mlp_bias", default=False),
    )
    absent = {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 27648}
    return turned_sizes(hf, style, absent=absent)


def stablelm_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """StableLM 3B and its kin (Bellagente et al. 2024): LayerNorm, and a quarter of each head turned.

    Sublayers stand behind or beside each other. The 12 billion one, whose every head has a norm, is refused.
    """
    fields = hf.fields
    fields.only("qk_layernorm", False)
    style = Style(
        residual="parallel" if fields.flag("use_parallel_residual", default=False) else "pre",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=read_activation(fields),
        gated=True,
        bias=False,
        qkv_bias=fields.flag("use_qkv_bias", default=False),
    )
    return turned_sizes(hf, style, absent={"num_key_value_heads": 32, "intermediate_size": 6912}, share=0.25)


def stablelm_names(config: DecoderOnlyConfig) -> Names:
    """Llama's. Sublayers beside each other have one norm, which both of ours are then."""
    if config.style.residual == "pre":
        return llama_names(config)
    one = norm_names(f"{_LAYER}.feed_forward_norm", f"{_THEIRS}.input_layernorm")
    return {**llama_names(config), **one}


def starcoder2_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """StarCoder 2 (Lozhkov et al. 2024): GPT-2's layers, with turned heads, and a window in all layers or in none."""
    fields = hf.fields
    fields.only("norm_type", "layer_norm")
    fields.only("mlp_type", "default")
    style = Style(
        norm_eps=fields.number("norm_epsilon", 1e-5),
        activation=read_activation(fields, default="gelu_pytorch_tanh"),
        bias=fields.flag("use_bias", default=True),
    )
    config = turned_sizes(hf, style, tied=True, absent={"num_key_value_heads": 2, "intermediate_size": 12288})
    window = fields.whole_or_null("sliding_window", None)
    return windowed(hf, config, window, lambda _: window is not None, typed=False)


def starcoder2_names(config: DecoderOnlyConfig) -> Names:
    """Llama's, but for a feed-forward network without a gate."""
    ours, theirs = f"{_LAYER}.feed_forward", f"{_THEIRS}.mlp"
    return {
        **llama_names(config),
        **both(f"{ours}.up_proj", f"{theirs}.c_fc"),
        **both(f"{ours}.down_proj", f"{theirs}.c_proj"),
    }


LLAMA = Converter(
    model_type="llama",
    architectures=("LlamaForCausalLM",),
    family="decoder_only",
    sizes=llama_sizes,
    names=llama_names,
    ignored=(r".*\.rotary_emb\.inv_freq",),
    bias="embeddings.bias",
)
MISTRAL = replace(LLAMA, model_type="mistral", architectures=("MistralForCausalLM",), sizes=mistral_sizes)
MINISTRAL = replace(LLAMA, model_type="ministral", architectures=("MinistralForCausalLM",), sizes=ministral_sizes)
QWEN2 = replace(LLAMA, model_type="qwen2", architectures=("Qwen2ForCausalLM",), sizes=qwen2_sizes)
QWEN3 = replace(LLAMA, model_type="qwen3", architectures=("Qwen3ForCausalLM",), sizes=qwen3_sizes, names=qwen3_names)
SMOLLM3 = replace(LLAMA, model_type="smollm3", architectures=("SmolLM3ForCausalLM",), sizes=smollm3_sizes)
SEED_OSS = replace(LLAMA, model_type="seed_oss", architectures=("SeedOssForCausalLM",), sizes=seed_sizes)
STABLELM = replace(
    LLAMA, model_type="stablelm", architectures=("StableLmForCausalLM",), sizes=stablelm_sizes, names=stablelm_names
)
STARCODER2 = replace(
    LLAMA,
    model_type="starcoder2",
    architectures=("Starcoder2ForCausalLM",),
    sizes=starcoder2_sizes,
    names=starcoder2_names,
)


def _embedder_of(converter: Converter) -> Converter:
    """Return what makes an embedder of the body of a kind, whether it was saved alone or under a head for words."""
    (whole,) = converter.architectures

    def sizes(hf: HfCheckpoint) -> "DecoderEmbedderConfig":
        from weft_export.converters.sentence import decoder_embedder_sizes  # noqa: PLC0415 - late: for embedders alone

        return decoder_embedder_sizes(converter.sizes(hf), hf)

    def computed_names(config: object, hf: HfCheckpoint) -> Names:
        from weft_export.converters.sentence import dense_names  # noqa: PLC0415 - same

        return dense_names(config, hf)

    def names(config: "DecoderEmbedderConfig") -> Names:
        table = {**converter.names(config.body)}
        # The words of a head are nobody's here, even where they differ from those that are read.
        tokens = table["embeddings.tokens.weight"]
        table["embeddings.tokens.weight"] = tokens if isinstance(tokens, str) else tokens.names[0]
        return layer_names(table, "body.", "")

    return Converter(
        model_type=converter.model_type,
        architectures=(whole.replace("ForCausalLM", "Model"), whole),
        family="decoder_embedder",
        sizes=sizes,
        names=names,
        prefix="model.",
        computed_names=computed_names,
        ignored=(*converter.ignored, r"lm_head\..*"),
    )


DECODER_BODIES = tuple(map(_embedder_of, (LLAMA, MISTRAL, QWEN2, QWEN3)))
"""Bodies of decoders that embed texts: Qwen3 Embedding (Zhang et al. 2025) and others of its kind."""
CONVERTERS = (LLAMA, MISTRAL, MINISTRAL, QWEN2, QWEN3, SMOLLM3, SEED_OSS, STABLELM, STARCODER2, *DECODER_BODIES)
