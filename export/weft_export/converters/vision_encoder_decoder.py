"""VisionEncoderDecoder: ViT or DeiT with GPT-2 (captions), and TrOCR (Li et al. 2023; lines of text)."""

import math
from typing import Any

import torch
from torch import Tensor

from weft_export.converters.bart import FIRST_ROW, decoder_names, slowest_table
from weft_export.converters.captioners import encoder_sizes, vit_names
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.donut import DONUT, is_donut
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.sources import (
    Names,
    Source,
    both,
    computed,
    from_row,
    layer_names,
    tied,
    transposed,
)
from weft_export.families.vision_encoder_decoder import VisionEncoderDecoderConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style

_CLASS_TOKENS = {"vit": 1, "deit": 2}
GPT2, TROCR = "gpt2", "trocr"


def sizes(hf: HfCheckpoint) -> VisionEncoderDecoderConfig:
    """The encoder's answer is brought to the decoder's width, or the decoder reads it at its own."""
    fields = hf.fields
    fields.only("is_encoder_decoder", True)
    fields.skip("tie_word_embeddings", "processor_class")
    encoder, decoder = fields.part("encoder"), fields.part("decoder")
    kind = encoder.word("model_type")
    if kind not in _CLASS_TOKENS:
        raise encoder.wrong("model_type", f"is not supported as an encoder; known are {', '.join(_CLASS_TOKENS)}")
    readers = {GPT2: _gpt2_sizes, TROCR: _trocr_sizes}
    written = decoder.word("model_type")
    if written not in readers:
        raise decoder.wrong("model_type", f"is not supported as a decoder; known are {', '.join(readers)}")
    of_encoder, of_decoder = encoder_sizes(hf, encoder), readers[written](hf, decoder)
    reads_at = decoder.whole("cross_attention_hidden_size", 0)
    return VisionEncoderDecoderConfig(
        **of_encoder,
        **of_decoder,
        num_class_tokens=_CLASS_TOKENS[kind],
        projected=not reads_at and of_encoder["d_encoder"] != of_decoder["d_model"],
    )


def _gpt2_sizes(hf: HfCheckpoint, fields: Fields) -> dict[str, Any]:
    """GPT-2 with a third sublayer, which reads the picture."""
    fields.only("scale_attn_weights", True)
    fields.only("scale_attn_by_inverse_layer_idx", False)
    fields.skip("reorder_and_upcast_attn", "n_ctx", "num_hidden_layers", "hidden_size")
    fields.skip("summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout")
    fields.skip("summary_proj_to_labels")
    d_model = fields.whole("n_embd", 768)
    return {
        "target_vocab_size": fields.whole("vocab_size", 50257),
        "max_target_tokens": hf.max_tokens(fields.whole("n_positions", 1024), 256),
        "d_model": d_model,
        "num_decoder_heads": fields.whole("n_head", 12),
        "d_decoder_ff": fields.whole("n_inner", 4 * d_model),
        "num_decoder_layers": fields.whole("n_layer", 12),
        "style": Style(
            norm_eps=fields.number("layer_norm_epsilon", 1e-5),
            activation=fields.among("activation_function", ACTIVATIONS, "gelu_new"),
        ),
        "embeddings": EmbeddingStyle(
            positions=True,
            tied=fields.flag("tie_word_embeddings", default=True),
            bias=bool(hf.generation.banned),
        ),
    }


def _trocr_sizes(hf: HfCheckpoint, fields: Fields) -> dict[str, Any]:
    """BART's decoder."""
    fields.skip("classifier_dropout", "decoder_start_token_id", "hidden_size", "max_position_embeddings")
    d_model = fields.whole("d_model", 1024)
    if not fields.flag("use_learned_position_embeddings", default=True):
        fields.only("pad_token_id", FIRST_ROW - 1)
    return {
        "target_vocab_size": fields.whole("vocab_size", 50265),
        "max_target_tokens": hf.max_tokens(fields.whole("max_position_embeddings", 512), 256),
        "d_model": d_model,
        "num_decoder_heads": fields.whole("decoder_attention_heads", 16),
        "d_decoder_ff": fields.whole("decoder_ffn_dim", 4096),
        "num_decoder_layers": fields.whole("decoder_layers", 12),
        "style": Style(residual="post", activation=fields.among("activation_function", ACTIVATIONS, "gelu")),
        "embeddings": EmbeddingStyle(
            scale=math.sqrt(d_model) if fields.flag("scale_embedding", default=False) else 1.0,
            positions=True,
            norm=fields.flag("layernorm_embedding", default=True),
            tied=fields.flag("tie_word_embeddings", default=True),
            bias=bool(hf.generation.banned),
        ),
    }


def names(config: VisionEncoderDecoderConfig) -> Names:
    """Their decoder is a model of its own, GPT-2 or TrOCR; its names do not overlap with the other's."""
    decoder = _trocr_names(config) if config.style.residual == "post" else _gpt2_names(config)
    return {
        **vit_names(distilled=config.num_class_tokens > 1),
        **both("projection", "enc_to_dec_proj"),
        **decoder,
    }


def _gpt2_names(config: VisionEncoderDecoderConfig) -> Names:
    tokens, head = "decoder.transformer.wte.weight", "decoder.lm_head.weight"
    return {
        "decoder.embedding.tokens.weight": tied(tokens, head) if config.embeddings.tied else tokens,
        "decoder.embedding.projection.weight": "decoder.lm_head.weight",
        "decoder.embedding.bias": unbiased(config),
        "decoder.embedding.positions.weight": from_row(0, "decoder.transformer.wpe.weight", config.max_target_tokens),
        **layer_names(_GPT2_LAYER, "decoder.layers.{}.", "decoder.transformer.h.{}."),
        **both("decoder.norm", "decoder.transformer.ln_f"),
    }


def unbiased(config: VisionEncoderDecoderConfig) -> Source:
    """Return a bias of zeros: no file has it."""
    return computed(lambda: torch.zeros(config.target_vocab_size))


def _turned(ours: str, theirs: str) -> Names:
    """GPT-2 stores its matrices as [in, out]."""
    return {f"{ours}.weight": transposed(f"{theirs}.weight"), f"{ours}.bias": f"{theirs}.bias"}


def _part(ours: str, theirs: str, index: int) -> Names:
    """Take one half of a product: keys are the first, values the second."""

    def matrix(stored: Tensor) -> Tensor:
        return stored.chunk(2, dim=1)[index].t()

    def vector(stored: Tensor) -> Tensor:
        return stored.chunk(2)[index]

    return {f"{ours}.weight": computed(matrix, f"{theirs}.weight"), f"{ours}.bias": computed(vector, f"{theirs}.bias")}


_GPT2_LAYER: Names = {
    **both("self_attention_norm", "ln_1"),
    **_turned("self_attention.qkv", "attn.c_attn"),
    **_turned("self_attention.output", "attn.c_proj"),
    **both("cross_attention_norm", "ln_cross_attn"),
    **_turned("cross_attention.query", "crossattention.q_attn"),
    **_part("cross_attention.key", "crossattention.c_attn", 0),
    **_part("cross_attention.value", "crossattention.c_attn", 1),
    **_turned("cross_attention.output", "crossattention.c_proj"),
    **both("feed_forward_norm", "ln_2"),
    **_turned("feed_forward.up_proj", "mlp.c_fc"),
    **_turned("feed_forward.down_proj", "mlp.c_proj"),
}


def _trocr_names(config: VisionEncoderDecoderConfig) -> Names:
    body = "decoder.model.decoder."
    table, head = f"{body}embed_tokens.weight", "decoder.output_projection.weight"
    tokens = tied(table, head) if config.embeddings.tied else table
    count, positions = config.max_target_tokens, f"{body}embed_positions.weight"
    return {
        "decoder.embedding.tokens.weight": tokens,
        "decoder.embedding.projection.weight": "decoder.output_projection.weight",
        "decoder.embedding.bias": unbiased(config),
        "decoder.embedding.positions.weight": _trocr_positions(count, config.d_model, positions),
        **both("decoder.embedding.norm", f"{body}layernorm_embedding"),
        **decoder_names("decoder.layers.{}.", f"{body}layers.{{}}."),
    }


def _trocr_positions(count: int, d_model: int, stored: str) -> Source:
    """Return learned positions; a model with sinusoids stores none."""

    def rows(table: Tensor | None) -> Tensor:
        if table is None:
            table = slowest_table(count + FIRST_ROW, d_model)
        return table[FIRST_ROW : FIRST_ROW + count]

    return computed(rows, stored, optional=(stored,))


VISION_ENCODER_DECODER = Converter(
    model_type="vision-encoder-decoder",
    architectures=("VisionEncoderDecoderModel",),
    family="vision_encoder_decoder",
    sizes=sizes,
    names=names,
    ignored=(
        r"encoder\.pooler\..*",
        r"encoder\.embeddings\.mask_token",
        r"decoder\.transformer\.h\.\d+\.(attn|crossattention)\.(bias|masked_bias)",
        r"decoder\.model\.decoder\.(version|embed_positions\..*)",
    ),
    bias="decoder.embedding.bias",
    nested="decoder",
    is_for=lambda config: not is_donut(config),
)
CONVERTERS = (VISION_ENCODER_DECODER, DONUT)
