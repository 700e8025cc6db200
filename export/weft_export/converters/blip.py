"""BLIP for captions (Li et al. 2022): a ViT, and BERT's layers with a sublayer more that reads the picture."""

from collections.abc import Mapping
from typing import Any

from weft_export.converters.captioners import encoder_sizes
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.pictures import patches, without_batch
from weft_export.converters.sources import Names, both, both_rows, first_of, from_row, layer_names, norm, tied
from weft_export.families.vision_encoder_decoder import VisionEncoderDecoderConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style


def sizes(hf: HfCheckpoint) -> VisionEncoderDecoderConfig:
    """Two objects of config.json describe the two sides."""
    fields = hf.fields
    fields.skip("projection_dim", "logit_scale_init_value", "image_text_hidden_size", "tie_word_embeddings")
    fields.skip("label_smoothing", "processor_class")
    text, vision = fields.part("text_config"), fields.part("vision_config")
    vision.skip("tie_word_embeddings")
    text.skip("projection_dim", "label_smoothing", "encoder_hidden_size", "is_encoder_decoder")
    eps, activation = text.number("layer_norm_eps", 1e-12), text.among("hidden_act", ACTIVATIONS, "gelu")
    return VisionEncoderDecoderConfig(
        **encoder_sizes(hf, vision, eps=1e-5, image_size=384),
        target_vocab_size=text.whole("vocab_size", 30524),
        max_target_tokens=hf.max_tokens(text.whole("max_position_embeddings", 512), 256),
        d_model=text.whole("hidden_size", 768),
        num_decoder_heads=text.whole("num_attention_heads", 8),
        d_decoder_ff=text.whole("intermediate_size", 3072),
        num_decoder_layers=text.whole("num_hidden_layers", 12),
        style=Style(residual="post", norm_eps=eps, activation=activation),
        embeddings=EmbeddingStyle(
            positions=True,
            norm=True,
            norm_eps=eps,
            transform=activation,
            tied=text.flag("tie_word_embeddings", default=True),
            bias=True,
        ),
    )


def starts_and_ends(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what BLIP's own generate() says: a caption begins with [DEC] and ends with [SEP]."""
    text = config.get("text_config") or {}
    start = text.get("bos_token_id", 30522)
    return {
        "decoder_start_token_id": start,
        "bos_token_id": start,
        "eos_token_id": text.get("sep_token_id", 102),
        "pad_token_id": text.get("pad_token_id", 0),
    }


def names(config: VisionEncoderDecoderConfig) -> Names:
    """Queries, keys and values of the picture lie in one matrix already."""
    text, vision, head = "text_decoder.bert.", "vision_model.", "text_decoder.cls.predictions."
    tokens = f"{text}embeddings.word_embeddings.weight"
    return {
        "class_tokens": without_batch(f"{vision}embeddings.class_embedding"),
        "positions": without_batch(f"{vision}embeddings.position_embedding"),
        **patches("patches.projection", f"{vision}embeddings.patch_embedding"),
        **layer_names(VISION_LAYER, "encoder.layers.{}.", f"{vision}encoder.layers.{{}}."),
        **both("encoder.norm", f"{vision}post_layernorm"),
        "decoder.embedding.tokens.weight": tied(tokens, f"{head}decoder.weight") if config.embeddings.tied else tokens,
        "decoder.embedding.positions.weight": from_row(
            0, f"{text}embeddings.position_embeddings.weight", config.max_target_tokens
        ),
        **norm("decoder.embedding.norm", f"{text}embeddings.LayerNorm"),
        **both("decoder.embedding.transform.linear", f"{head}transform.dense"),
        **norm("decoder.embedding.transform.norm", f"{head}transform.LayerNorm"),
        "decoder.embedding.projection.weight": f"{head}decoder.weight",
        "decoder.embedding.bias": first_of(f"{head}decoder.bias", f"{head}bias"),
        **layer_names(_TEXT, "decoder.layers.{}.", f"{text}encoder.layer.{{}}."),
    }


VISION_LAYER: Names = {
    **both("attention_norm", "layer_norm1"),
    **both("attention.qkv", "self_attn.qkv"),
    **both("attention.output", "self_attn.projection"),
    **both("feed_forward_norm", "layer_norm2"),
    **both("feed_forward.up_proj", "mlp.fc1"),
    **both("feed_forward.down_proj", "mlp.fc2"),
}
_TEXT: Names = {
    **both_rows("self_attention.qkv", "attention.self.{query,key,value}"),
    **both("self_attention.output", "attention.output.dense"),
    **norm("self_attention_norm", "attention.output.LayerNorm"),
    **both("cross_attention.query", "crossattention.self.query"),
    **both("cross_attention.key", "crossattention.self.key"),
    **both("cross_attention.value", "crossattention.self.value"),
    **both("cross_attention.output", "crossattention.output.dense"),
    **norm("cross_attention_norm", "crossattention.output.LayerNorm"),
    **both("feed_forward.up_proj", "intermediate.dense"),
    **both("feed_forward.down_proj", "output.dense"),
    **norm("feed_forward_norm", "output.LayerNorm"),
}
BLIP = Converter(
    model_type="blip",
    architectures=("BlipForConditionalGeneration",),
    family="vision_encoder_decoder",
    sizes=sizes,
    names=names,
    ignored=(r".*\.position_ids", r"text_decoder\.cls\.predictions\.(bias|decoder\.bias)"),
    bias="decoder.embedding.bias",
    fixed=starts_and_ends,
    # Its generate() hands over to the decoder, which knows nothing of the directory's file.
    follows_settings=False,
)
CONVERTERS = (BLIP,)
