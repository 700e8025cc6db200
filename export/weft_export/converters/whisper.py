"""Whisper's decoder (Radford et al. 2022). What it reads, speech, has no encoder here yet, so no bundle is made of it.

`read_decoder` is for who brings the encoder: it gives the decoder as one of our modules, with its cached steps.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from weft_export.checkpoints.sharing import without_weights
from weft_export.converters.activations import ACTIVATIONS
from weft_export.converters.converter import Converter, Foreign
from weft_export.converters.filling import fill, plan
from weft_export.converters.pictures import with_zero_keys
from weft_export.converters.sources import Names, both, computed, first_of, from_row, layer_names, rows
from weft_export.converters.tensors import StoredTensors
from weft_export.layers.decoder import Decoder
from weft_export.layers.style import Style
from weft_export.layers.words import Words, WordStyle


@dataclass(frozen=True)
class DecoderSizes:
    """The sizes of a decoder alone; see VisionEncoderDecoderConfig."""

    vocab_size: int
    max_tokens: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    style: Style
    words: WordStyle


def sizes(foreign: Foreign) -> DecoderSizes:
    """Norms before sublayers, learned positions, and keys without a bias."""
    fields = foreign.fields
    d_model = fields.whole("d_model", 384)
    return DecoderSizes(
        vocab_size=fields.whole("vocab_size", 51865),
        max_tokens=foreign.max_tokens(fields.whole("max_target_positions", 448)),
        d_model=d_model,
        num_heads=fields.whole("decoder_attention_heads", 6),
        d_ff=fields.whole("decoder_ffn_dim", 1536),
        num_layers=fields.whole("decoder_layers", 4),
        style=Style(activation=fields.among("activation_function", ACTIVATIONS, "gelu")),
        words=WordStyle(
            scale=math.sqrt(d_model) if fields.flag("scale_embedding", default=False) else 1.0,
            positions=True,
            tied=fields.flag("tie_word_embeddings", default=True),
        ),
    )


def names(config: DecoderSizes) -> Names:
    """BART's names, but for the missing bias."""
    body = "model.decoder."
    return {
        "embedding.tokens.weight": first_of(f"{body}embed_tokens.weight", "proj_out.weight"),
        "embedding.positions.weight": from_row(0, f"{body}embed_positions.weight", config.max_tokens),
        "embedding.projection.weight": "proj_out.weight",
        **layer_names(_LAYER, "layers.{}.", f"{body}layers.{{}}."),
        **both("norm", f"{body}layer_norm"),
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
    **both("feed_forward.inner", "fc1"),
    **both("feed_forward.outer", "fc2"),
    **both("feed_forward_norm", "final_layer_norm"),
}
# It stands in no registry: alone it has no task.
_WHISPER = Converter(
    model_type="whisper",
    architectures=("WhisperForConditionalGeneration",),
    family="",
    sizes=sizes,
    names=names,
    ignored=(r"model\.encoder\..*", r"proj_out\.weight"),
)


def read_decoder(directory: Path, foreign: Foreign) -> Decoder:
    """Return the decoder of a directory, in eval mode and float32.

    Raises:
        CheckpointError: a weight is missing, not used, or of another shape than config.json says.
    """
    stored, config = StoredTensors(directory), sizes(foreign)
    with torch.device("meta"):
        shell = _module(config)
    filled = fill(plan(_WHISPER, config, foreign, shell, stored), stored)
    with without_weights():
        decoder = _module(config)
    decoder.load_state_dict(filled, assign=True)
    return decoder.eval()


def _module(config: DecoderSizes) -> Decoder:
    words = Words(config.vocab_size, config.max_tokens, config.d_model, config.words)
    layers = (config.d_model, config.num_heads, config.d_ff, 0.0, config.style)
    return Decoder(words, config.max_tokens, config.num_layers, *layers)
