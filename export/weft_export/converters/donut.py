"""Donut (Kim et al. 2022): a Swin Transformer and mBART's decoder, which a task's token tells what to write."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from weft_export.converters.bart import FIRST_ROW, decoder_names
from weft_export.converters.converter import DEFAULT_TOKENS, Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.sources import Names, both, computed, from_row, layer_names, tied
from weft_export.converters.swin import body_names, body_sizes, check_windows
from weft_export.errors import CheckpointError
from weft_export.families.donut import DonutConfig
from weft_export.families.swin import SwinSizes
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style

SWIN, MBART = "donut-swin", "mbart"


def sizes(hf: HfCheckpoint) -> DonutConfig:
    """Two objects of config.json describe the two sides."""
    fields = hf.fields
    fields.only("is_encoder_decoder", True)
    fields.skip("tie_word_embeddings", "processor_class")
    if not hf.generation.says_start:
        raise CheckpointError(
            "neither generation_config.json nor config.json says decoder_start_token_id: write the id of the token with"
            " which prompts of its task begin, such as <s_docvqa>; what a request asks stands behind it"
        )
    encoder, decoder = fields.part("encoder"), fields.part("decoder")
    encoder.only("model_type", SWIN)
    encoder.only("qkv_bias", True)
    tower = SwinSizes(**body_sizes(hf, encoder))
    check_windows(encoder, tower)
    decoder.only("model_type", MBART)
    return DonutConfig(tower=tower, **_written(hf, decoder))


def _written(hf: HfCheckpoint, fields: Fields) -> dict[str, Any]:
    """MBART's decoder. What is said of its encoder is of none."""
    fields.only("cross_attention_hidden_size", None)
    fields.skip("encoder_layers", "encoder_ffn_dim", "encoder_attention_heads", "num_hidden_layers", "init_std")
    fields.skip("classifier_dropout", "decoder_start_token_id", "forced_eos_token_id", "is_encoder_decoder")
    for name in ("add_final_layer_norm", "normalize_before", "normalize_embedding"):
        fields.only(name, True)
    d_model = fields.whole("d_model", 1024)
    return {
        "target_vocab_size": fields.whole("vocab_size", 50265),
        "max_target_tokens": hf.max_tokens(fields.whole("max_position_embeddings", 1024), DEFAULT_TOKENS),
        "d_model": d_model,
        "num_decoder_heads": fields.whole("decoder_attention_heads", 16),
        "d_decoder_ff": fields.whole("decoder_ffn_dim", 4096),
        "num_decoder_layers": fields.whole("decoder_layers", 12),
        "style": Style(activation=fields.among("activation_function", ACTIVATIONS, "gelu")),
        "embeddings": EmbeddingStyle(
            scale=math.sqrt(d_model) if fields.flag("scale_embedding", default=False) else 1.0,
            positions=True,
            norm=True,
            tied=fields.flag("tie_word_embeddings", default=True),
            bias=bool(hf.generation.banned),
        ),
    }


def names(config: DonutConfig) -> Names:
    """Names of both sides do not overlap."""
    body, head = "decoder.model.decoder.", "decoder.lm_head.weight"
    table = f"{body}embed_tokens.weight"
    return {
        **layer_names(body_names("encoder", config.tower), "tower.", ""),
        **both("projection", "enc_to_dec_proj"),
        "decoder.embedding.tokens.weight": tied(table, head) if config.embeddings.tied else table,
        "decoder.embedding.projection.weight": head,
        "decoder.embedding.bias": computed(lambda: torch.zeros(config.target_vocab_size)),
        "decoder.embedding.positions.weight": from_row(
            FIRST_ROW, f"{body}embed_positions.weight", config.max_target_tokens
        ),
        **both("decoder.embedding.norm", f"{body}layernorm_embedding"),
        **decoder_names("decoder.layers.{}.", f"{body}layers.{{}}."),
        **both("decoder.norm", f"{body}layer_norm"),
    }


def is_donut(config: Mapping[str, Any]) -> bool:
    """Whether the encoder of a config.json is Donut's."""
    encoder = config.get("encoder")
    return isinstance(encoder, dict) and encoder.get("model_type") == SWIN


DONUT = Converter(
    model_type="vision-encoder-decoder",
    architectures=("VisionEncoderDecoderModel",),
    family="donut",
    sizes=sizes,
    names=names,
    ignored=(
        r"encoder\..*\.relative_position_index",
        r"encoder\.embeddings\.mask_token",
        r"encoder\.layernorm\..*",
        r"decoder\.model\.decoder\.version",
    ),
    bias="decoder.embedding.bias",
    nested="decoder",
    is_for=is_donut,
)
