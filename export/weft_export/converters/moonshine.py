"""Moonshine (Jeffries et al. 2024): speech to text, from the samples of a recording."""

from dataclasses import replace

import torch

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.ctc_files import WINDOW_S, read_waveform_keys, sample_rate_of
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.heads import HeadLayout
from weft_export.converters.rope import read_rope, rope_dim
from weft_export.converters.sources import Names, Source, both, computed, half, layer_names, tied
from weft_export.families.waveform_speech import WaveformSpeechConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style

# The attention operator of ONNX Runtime turns heads of a multiple of so many numbers.
_MULTIPLE = 16


def sizes(hf: HfCheckpoint) -> WaveformSpeechConfig:
    """Heads are turned in part, in pairs of neighbours. Where theirs are of a length that no operator has, we pad."""
    fields = hf.fields
    fields.only("is_encoder_decoder", True)
    # Padding that leaves every score as it is.
    fields.skip("pad_head_dim_to_multiple_of", "max_position_embeddings")
    d_model, num_heads = fields.whole("hidden_size", 288), fields.whole("decoder_num_attention_heads", 8)
    # Both sides turn heads by the sizes of one.
    fields.only("encoder_num_attention_heads", num_heads)
    for name in ("encoder_num_key_value_heads", "decoder_num_key_value_heads"):
        fields.only(name, num_heads)
    stored = d_model // max(1, num_heads)
    if stored * num_heads != d_model:
        raise fields.wrong("hidden_size", f"must be a multiple of decoder_num_attention_heads, {num_heads}")
    rotation = read_rope(fields, stored, fields.whole("max_position_embeddings", 512), share=0.9)
    head_dim = stored + -stored % _MULTIPLE
    rotation = replace(
        rotation, frequencies=(*rotation.frequencies, *(0.0,) * (head_dim // 2 - len(rotation.frequencies)))
    )
    qkv_bias = fields.flag("attention_bias", default=False)

    def style(activation: str, *, gated: bool) -> Style:
        return Style(
            activation=activation,
            gated=gated,
            bias=False,
            qkv_bias=qkv_bias,
            feed_forward_bias=True,
            norm_bias=False,
            norm_eps=1e-5,
            head_dim=head_dim,
            scale=stored**-0.5,
        )

    d_ff = fields.whole("intermediate_size", 1152)
    read_waveform_keys(hf)
    config = WaveformSpeechConfig(
        target_vocab_size=fields.whole("vocab_size", 32768),
        max_target_tokens=hf.max_tokens(None, fields.whole("max_position_embeddings", 512)),
        num_frames=1,
        d_model=d_model,
        num_heads=num_heads,
        d_encoder_ff=d_ff,
        num_encoder_layers=fields.whole("encoder_num_hidden_layers", 6),
        d_decoder_ff=d_ff,
        num_decoder_layers=fields.whole("decoder_num_hidden_layers", 6),
        rotation=rotation,
        encoder_style=style(fields.among("encoder_hidden_act", ACTIVATIONS, "gelu"), gated=False),
        style=style(fields.among("decoder_hidden_act", ACTIVATIONS, "silu"), gated=True),
        embeddings=EmbeddingStyle(
            tied=fields.flag("tie_word_embeddings", default=True),
            bias=bool(hf.generation.banned),
        ),
    )
    return replace(config, num_frames=WINDOW_S * sample_rate_of(hf) // config.hop_size)


def names(config: WaveformSpeechConfig) -> Names:
    """Return where each weight comes from."""
    encoder, decoder = "model.encoder.", "model.decoder."
    words, projection = f"{decoder}embed_tokens.weight", "proj_out.weight"
    embedding: dict[str, Source | str] = {"decoder.embedding.tokens.weight": words}
    if config.embeddings.tied:
        embedding = {"decoder.embedding.tokens.weight": tied(words, projection)}
    else:
        embedding["decoder.embedding.projection.weight"] = projection
    if config.embeddings.bias:
        embedding["decoder.embedding.bias"] = computed(lambda: torch.zeros(config.target_vocab_size))
    return {
        "first.weight": f"{encoder}conv1.weight",
        **both("norm", f"{encoder}groupnorm"),
        **both("second", f"{encoder}conv2"),
        **both("third", f"{encoder}conv3"),
        **layer_names(_hearing(config), "encoder.layers.{}.", f"{encoder}layers.{{}}."),
        "encoder.norm.weight": f"{encoder}layer_norm.weight",
        **embedding,
        **layer_names(_layer(config), "decoder.layers.{}.", f"{decoder}layers.{{}}."),
        "decoder.norm.weight": f"{decoder}norm.weight",
    }


def _heads(config: WaveformSpeechConfig) -> HeadLayout:
    return HeadLayout(
        num_heads=config.num_heads,
        num_kv_heads=config.num_heads,
        stored=config.d_model // config.num_heads,
        size=2 * len(config.rotation.frequencies),
        turned=rope_dim(config.rotation),
        neighbours=True,
    )


def _self_names(config: WaveformSpeechConfig, ours: str) -> Names:
    heads = _heads(config)
    parts = ("weight", "bias") if config.style.qkv_bias else ("weight",)
    stored = {part: [f"self_attn.{each}_proj.{part}" for each in ("q", "k", "v")] for part in parts}
    return {
        **{f"{ours}.qkv.{part}": heads.qkv(*stored[part]) for part in parts},
        f"{ours}.output.weight": heads.output("self_attn.o_proj.weight"),
    }


def _hearing(config: WaveformSpeechConfig) -> Names:
    return {
        **_self_names(config, "attention"),
        "attention_norm.weight": "input_layernorm.weight",
        "feed_forward_norm.weight": "post_attention_layernorm.weight",
        **both("feed_forward.up_proj", "mlp.fc1"),
        **both("feed_forward.down_proj", "mlp.fc2"),
    }


def _layer(config: WaveformSpeechConfig) -> Names:
    heads = _heads(config)
    parts = ("weight", "bias") if config.style.qkv_bias else ("weight",)
    return {
        **_self_names(config, "self_attention"),
        **{
            f"cross_attention.{ours}.{part}": heads.plain(f"encoder_attn.{theirs}_proj.{part}")
            for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"))
            for part in parts
        },
        "cross_attention.output.weight": heads.output("encoder_attn.o_proj.weight"),
        "self_attention_norm.weight": "input_layernorm.weight",
        "cross_attention_norm.weight": "post_attention_layernorm.weight",
        "feed_forward_norm.weight": "final_layernorm.weight",
        # The upper half is multiplied by what the lower one becomes.
        **{f"feed_forward.up_proj.{part}": half(0, f"mlp.fc1.{part}") for part in ("weight", "bias")},
        **{f"feed_forward.gate_proj.{part}": half(1, f"mlp.fc1.{part}") for part in ("weight", "bias")},
        **both("feed_forward.down_proj", "mlp.fc2"),
    }


MOONSHINE = Converter(
    model_type="moonshine",
    architectures=("MoonshineForConditionalGeneration",),
    family="waveform_speech",
    sizes=sizes,
    names=names,
    bias="decoder.embedding.bias",
)
CONVERTERS = (MOONSHINE,)
