"""SigLIP (Zhai et al. 2023): both encoders, each alone, or that of pictures with labels that were trained."""

from collections.abc import Mapping
from typing import Any

from weft_export.converters.clip_texts import check_pooling, encoder_layer
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.pictures import label_sizes, patches, picture_sides, squares_only
from weft_export.converters.sources import Names, Source, both, computed, from_row, layer_names
from weft_export.converters.text.side import read_text_side
from weft_export.errors import CheckpointError
from weft_export.families.siglip import SiglipConfig, SiglipEmbedderConfig, SiglipVisionConfig
from weft_export.families.text_embedder import Dense, TextEmbedderConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.pooling import LAST
from weft_export.layers.style import Style

_VISION, _TEXT = "vision_model.", "text_model."
# As long the pipeline of transformers makes each text.
_LENGTH = 64
_PROJECTED = ("query", "key", "value")


def sizes(hf: HfCheckpoint) -> SiglipVisionConfig:
    """The mean of the patches, under a head that was trained for its labels."""
    # The text encoder is not in the file, and the query that attends to all patches is not read.
    hf.fields.skip("text_config")
    fields = hf.fields.part("vision_config")
    fields.skip("vision_use_head", "model_type")
    labels: dict[str, Any] = label_sizes(hf)
    return SiglipVisionConfig(**labels, **tower_sizes(hf, fields))


def embedder_sizes(hf: HfCheckpoint) -> SiglipEmbedderConfig:
    """The image encoder alone, whose config is no part of another."""
    hf.fields.only("vision_use_head", True)
    return SiglipEmbedderConfig(**tower_sizes(hf, hf.fields))


def tower_sizes(hf: HfCheckpoint, fields: Fields) -> dict[str, Any]:
    """Return the sizes of the image encoder."""
    sides = picture_sides(hf, fields)
    squares_only(sides, "SigLIP")
    return {
        **sides,
        "d_model": fields.whole("hidden_size", 768),
        "num_heads": fields.whole("num_attention_heads", 12),
        "d_ff": fields.whole("intermediate_size", 3072),
        "num_layers": fields.whole("num_hidden_layers", 12),
        "norm_eps": fields.number("layer_norm_eps", 1e-6),
        "activation": fields.among("hidden_act", ACTIVATIONS, "gelu_pytorch_tanh"),
    }


def tower_names(prefix: str = _VISION) -> dict[str, Source | str]:
    """Return the sources of all up to the last layer."""
    return {
        "positions": f"{prefix}embeddings.position_embedding.weight",
        **patches("patches.projection", f"{prefix}embeddings.patch_embedding"),
        **encoder_layer("encoder.layers.{}", f"{prefix}encoder.layers.{{}}"),
    }


def encoder_names(prefix: str = _VISION) -> dict[str, Source | str]:
    """Return the sources of all but what is behind the encoder."""
    return {**tower_names(prefix), **both("encoder.norm", f"{prefix}post_layernorm")}


def names(_: SiglipVisionConfig) -> Names:
    """Their names."""
    return {**encoder_names(), **both("head", "classifier")}


def embedder_names(_: SiglipEmbedderConfig) -> Names:
    """The same with the query. Its products with queries, keys and values lie below each other."""
    head = f"{_VISION}head"
    parts = {
        f"pooling.attention.{ours}.{part}": computed(
            lambda tensor, index=index: tensor.chunk(len(_PROJECTED))[index], f"{head}.attention.in_proj_{part}"
        )
        for index, ours in enumerate(_PROJECTED)
        for part in ("weight", "bias")
    }
    return {
        **encoder_names(),
        "pooling.probe": f"{head}.probe",
        **parts,
        **both("pooling.attention.output", f"{head}.attention.out_proj"),
        **both("pooling.norm", f"{head}.layernorm"),
        **both("pooling.feed_forward.up_proj", f"{head}.mlp.fc1"),
        **both("pooling.feed_forward.down_proj", f"{head}.mlp.fc2"),
    }


def texts_config(hf: HfCheckpoint, fields: Fields, text_fields: Mapping[str, Any]) -> TextEmbedderConfig:
    """Return the text encoder: texts are filled up to the length of training, and the last place is read.

    Raises:
        CheckpointError: a field is missing, or the tokenizer has no token to fill up with, or another length.
    """
    # A token of CLIP's, which no text of SigLIP has, stands there where nothing else is said.
    fields.skip("model_type", "bos_token_id", "eos_token_id", "pad_token_id")
    d_model, vocab_size = fields.whole("hidden_size", 768), fields.whole("vocab_size", 32000)
    length = min(_LENGTH, fields.whole("max_position_embeddings", _LENGTH))
    side = read_text_side(hf.directory, text_fields, vocab_size)
    if side.pad_id is None:
        raise CheckpointError(
            f"{hf.directory}: the tokenizer has no pad_token, which SigLIP's texts are filled up with"
        )
    if side.padding_side != "right":
        raise CheckpointError(
            f"{hf.directory}: padding_side is {side.padding_side!r:.20}: SigLIP's vectors are read where a text that is"
            " filled up on the right ends; set it in tokenizer_config.json if that is meant"
        )
    for name, chosen in (("model_max_length", side.max_length), ("--max-tokens", hf.options.max_tokens)):
        if chosen is not None and chosen != length:
            raise CheckpointError(f"{name} is {chosen}: SigLIP's texts are filled up to {length} tokens")
    return TextEmbedderConfig(
        vocab_size=vocab_size,
        max_tokens=length,
        d_model=d_model,
        num_heads=fields.whole("num_attention_heads", 12),
        d_ff=fields.whole("intermediate_size", 3072),
        num_layers=fields.whole("num_hidden_layers", 12),
        style=Style(
            norm_eps=fields.number("layer_norm_eps", 1e-6),
            activation=fields.among("hidden_act", ACTIVATIONS, "gelu_pytorch_tanh"),
        ),
        embeddings=EmbeddingStyle(positions=True),
        pooling=LAST,
        dense=(Dense(fields.whole("projection_size", d_model)),),
        filled_with=side.pad_id,
        sees_filling=not side.has_mask,
    )


def texts_sizes(hf: HfCheckpoint) -> TextEmbedderConfig:
    """The text encoder alone, whose config is no part of another."""
    check_pooling(hf)
    return texts_config(hf, hf.fields, {"model_type": "siglip_text_model"})


def pair_sizes(hf: HfCheckpoint) -> SiglipConfig:
    """Both towers; labels come with a request."""
    fields = hf.fields.part("vision_config")
    fields.skip("model_type")
    fields.only("vision_use_head", True)
    pictures = SiglipEmbedderConfig(**tower_sizes(hf, fields))
    texts = texts_config(hf, hf.fields.part("text_config"), {"model_type": "siglip"})
    return SiglipConfig(pictures=pictures, texts=texts)


def texts_names(config: TextEmbedderConfig) -> Names:
    """Their names of the text encoder."""
    return {
        "body.embeddings.tokens.weight": f"{_TEXT}embeddings.token_embedding.weight",
        "body.embeddings.positions.weight": from_row(
            0, f"{_TEXT}embeddings.position_embedding.weight", config.max_tokens
        ),
        **encoder_layer("body.encoder.layers.{}", f"{_TEXT}encoder.layers.{{}}"),
        **both("body.encoder.norm", f"{_TEXT}final_layer_norm"),
        **both("dense.0", f"{_TEXT}head"),
    }


def pair_names(config: SiglipConfig) -> Names:
    """The same for both towers."""
    return {
        **layer_names(embedder_names(config.pictures), "pictures.", ""),
        **layer_names(texts_names(config.texts), "texts.", ""),
        "log_scale": computed(lambda scale: scale[0], "logit_scale"),
        "score_bias": computed(lambda bias: bias[0], "logit_bias"),
    }


_IGNORED = (r".*\.position_ids",)
SIGLIP = Converter(
    model_type="siglip",
    architectures=("SiglipForImageClassification",),
    family="siglip_vision",
    sizes=sizes,
    names=names,
    ignored=(*_IGNORED, r"vision_model\.head\..*"),
)
SIGLIP_EMBEDDER = Converter(
    model_type="siglip_vision_model",
    architectures=("SiglipVisionModel",),
    family="siglip_embedder",
    sizes=embedder_sizes,
    names=embedder_names,
    prefix=_VISION,
    ignored=_IGNORED,
)
SIGLIP_PAIR = Converter(
    model_type="siglip",
    architectures=("SiglipModel",),
    family="siglip",
    sizes=pair_sizes,
    names=pair_names,
    ignored=_IGNORED,
)
SIGLIP_TEXTS = Converter(
    model_type="siglip_text_model",
    architectures=("SiglipTextModel",),
    family="text_embedder",
    sizes=texts_sizes,
    names=texts_names,
    prefix=_TEXT,
    ignored=_IGNORED,
)
CONVERTERS = (SIGLIP, SIGLIP_PAIR, SIGLIP_EMBEDDER, SIGLIP_TEXTS)
