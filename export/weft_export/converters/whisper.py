"""Whisper (Radford et al. 2022): speech to text."""

import torch

from weft_export.converters.audio_processor import read_audio_spec
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.sources import Names, both, computed, first_of, from_row, layer_names, rows, with_zero_keys
from weft_export.families.speech import SpeechConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style


def sizes(hf: HfCheckpoint) -> SpeechConfig:
    """Norms before sublayers, learned positions of words, and keys without a bias."""
    fields = hf.fields
    fields.only("is_encoder_decoder", True)
    fields.only("scale_embedding", False)
    fields.skip(
        "num_hidden_layers", "init_std", "median_filter_width", "use_weighted_layer_sum", "classifier_proj_size"
    )
    fields.skip("apply_spec_augment", "mask_time_prob", "mask_time_length", "mask_time_min_masks")
    fields.skip("mask_feature_prob", "mask_feature_length", "mask_feature_min_masks")
    d_model = fields.whole("d_model", 384)
    spec = read_audio_spec(hf)
    num_mels, num_positions = fields.whole("num_mel_bins", 80), fields.whole("max_source_positions", 1500)
    if spec.num_mels != num_mels:
        raise fields.wrong("num_mel_bins", f"is {num_mels}, and feature_size of the extractor is {spec.num_mels}")
    if spec.num_positions != num_positions:
        raise fields.wrong("max_source_positions", f"is {num_positions}; recordings become {spec.num_positions}")
    style = Style(activation=fields.among("activation_function", ACTIVATIONS, "gelu"))
    return SpeechConfig(
        target_vocab_size=fields.whole("vocab_size", 51865),
        max_target_tokens=hf.max_tokens(fields.whole("max_target_positions", 448)),
        num_mels=num_mels,
        num_frames=spec.num_frames,
        d_model=d_model,
        num_encoder_heads=fields.whole("encoder_attention_heads", 6),
        d_encoder_ff=fields.whole("encoder_ffn_dim", 1536),
        num_encoder_layers=fields.whole("encoder_layers", 4),
        num_decoder_heads=fields.whole("decoder_attention_heads", 6),
        d_decoder_ff=fields.whole("decoder_ffn_dim", 1536),
        num_decoder_layers=fields.whole("decoder_layers", 4),
        encoder_style=style,
        style=style,
        embeddings=EmbeddingStyle(
            positions=True,
            tied=fields.flag("tie_word_embeddings", default=True),
            bias=bool(hf.generation.banned),
        ),
    )


def names(config: SpeechConfig) -> Names:
    """BART's names, but for the missing bias and for the convolutions."""
    encoder, decoder = "model.encoder.", "model.decoder."
    bias = computed(lambda: torch.zeros(config.target_vocab_size))
    return {
        **both("first", f"{encoder}conv1"),
        **both("second", f"{encoder}conv2"),
        "positions": f"{encoder}embed_positions.weight",
        **layer_names(_HEARING, "encoder.layers.{}.", f"{encoder}layers.{{}}."),
        **both("encoder.norm", f"{encoder}layer_norm"),
        "decoder.embedding.tokens.weight": first_of(f"{decoder}embed_tokens.weight", "proj_out.weight"),
        "decoder.embedding.positions.weight": from_row(0, f"{decoder}embed_positions.weight", config.max_target_tokens),
        "decoder.embedding.projection.weight": "proj_out.weight",
        **layer_names(_LAYER, "decoder.layers.{}.", f"{decoder}layers.{{}}."),
        **both("decoder.norm", f"{decoder}layer_norm"),
        **({"decoder.embedding.bias": bias} if config.embeddings.bias else {}),
    }


_HEARING: Names = {
    "attention.qkv.weight": rows("self_attn.{q,k,v}_proj.weight"),
    "attention.qkv.bias": with_zero_keys("self_attn.q_proj.bias", "self_attn.v_proj.bias"),
    **both("attention.output", "self_attn.out_proj"),
    **both("attention_norm", "self_attn_layer_norm"),
    **both("feed_forward.up_proj", "fc1"),
    **both("feed_forward.down_proj", "fc2"),
    **both("feed_forward_norm", "final_layer_norm"),
}
_LAYER: Names = {
    "self_attention.qkv.weight": rows("self_attn.{q,k,v}_proj.weight"),
    "self_attention.qkv.bias": with_zero_keys("self_attn.q_proj.bias", "self_attn.v_proj.bias"),
    **both("self_attention.output", "self_attn.out_proj"),
    **both("self_attention_norm", "self_attn_layer_norm"),
    **both("cross_attention.query", "encoder_attn.q_proj"),
    "cross_attention.key.weight": "encoder_attn.k_proj.weight",
    "cross_attention.key.bias": computed(torch.zeros_like, "encoder_attn.q_proj.bias"),
    **both("cross_attention.value", "encoder_attn.v_proj"),
    **both("cross_attention.output", "encoder_attn.out_proj"),
    **both("cross_attention_norm", "encoder_attn_layer_norm"),
    **both("feed_forward.up_proj", "fc1"),
    **both("feed_forward.down_proj", "fc2"),
    **both("feed_forward_norm", "final_layer_norm"),
}
WHISPER = Converter(
    model_type="whisper",
    architectures=("WhisperForConditionalGeneration",),
    family="speech",
    sizes=sizes,
    names=names,
    ignored=(r"proj_out\.weight",),
    bias="decoder.embedding.bias",
    # Its generate() draws where it is called with a temperature, and by no file.
    fixed=lambda _: {"do_sample": False},
)
CONVERTERS = (WHISPER,)
