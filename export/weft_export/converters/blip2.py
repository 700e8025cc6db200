"""BLIP-2 (Li et al. 2023): a ViT and a Q-Former before OPT, or before T5."""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

from weft_export.converters import opt, t5
from weft_export.converters.blip import VISION_LAYER
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.llava import parts_of
from weft_export.converters.pictures import patches, picture_sides, without_batch
from weft_export.converters.sources import Names, both, both_rows, layer_names, norm
from weft_export.families.blip2 import Blip2Config, QueriesConfig, QuerySightConfig
from weft_export.families.blip2_t5 import Blip2T5Config
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.families.t5 import T5Config
from weft_export.families.vit import VitSizes
from weft_export.layers.style import Style
from weft_proto.bundle_rules import LIMITS

# What OPT's class takes where text_config says nothing.
_ABSENT = {
    "vocab_size": 50272,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 2048,
}
_ENDS = {"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
_T5_ENDS = {"decoder_start_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
_LANGUAGE = "language_model."


def sizes(hf: HfCheckpoint) -> Blip2Config:
    """Three objects of config.json describe the parts."""
    text, sight = _parts(hf)
    text.among("model_type", {"opt": "opt", "t5": "t5"}, "opt")
    for name, value in _ABSENT.items():
        text.take_for_granted(name, value)
    decoder = opt.sizes(replace(hf, fields=text))
    own = {field.name: getattr(decoder, field.name) for field in fields_of(DecoderOnlyConfig)}
    return Blip2Config(**own, sight=sight)


def sizes_before_t5(hf: HfCheckpoint) -> Blip2T5Config:
    """Do the same before an encoder."""
    text, sight = _parts(hf)
    own = frozenset(name.removeprefix(_LANGUAGE) for name in hf.tensors if name.startswith(_LANGUAGE))
    written = t5.sizes(replace(hf, fields=text, tensors=own))
    return Blip2T5Config(**{field.name: getattr(written, field.name) for field in fields_of(T5Config)}, sight=sight)


def _parts(hf: HfCheckpoint) -> tuple[Fields, QuerySightConfig]:
    """Return what config.json says of the language model, and what sees pictures for it."""
    fields = hf.fields
    # The token of a picture is read beside the tokenizer. The others say again what the parts say, or are of others.
    fields.skip("image_token_index", "image_token_id", "image_text_hidden_size", "use_decoder_only_language_model")
    fields.skip("tie_word_embeddings")
    text, vision = parts_of(fields)
    sight = QuerySightConfig(tower=_tower(hf, vision), queries=_queries(fields, fields.part("qformer_config")))
    return text, sight


def _tower(hf: HfCheckpoint, vision: Fields) -> VitSizes:
    vision.only("model_type", "blip_2_vision_model")
    vision.skip("projection_dim", "tie_word_embeddings")
    sides = picture_sides(hf, vision, patch_size=14)
    if sides["image_height"] != sides["image_width"] or sides["image_height"] % sides["patch_size"]:
        raise vision.wrong("image_size", "must be a square of whole patches")
    return VitSizes(
        **sides,
        d_model=vision.whole("hidden_size", 1408),
        num_heads=vision.whole("num_attention_heads", 16),
        d_ff=vision.whole("intermediate_size", 6144),
        num_layers=vision.whole("num_hidden_layers", 39),
        norm_eps=vision.number("layer_norm_eps", 1e-6),
        activation=vision.among("hidden_act", ACTIVATIONS, "gelu"),
        qkv_bias=vision.flag("qkv_bias", default=True),
    )


def _queries(fields: Fields, queries: Fields) -> QueriesConfig:
    queries.only("model_type", "blip_2_qformer")
    # With texts beside the queries, as those have it that compare pictures with texts.
    queries.only("use_qformer_text_input", False)
    # The width of what is read is the tower's. The queries have neither words nor places.
    queries.skip("encoder_hidden_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings")
    queries.only("position_embedding_type", "absolute")
    count, most = fields.whole("num_query_tokens", 32), int(LIMITS["ImageSpec"]["num_class_tokens"].maximum or 0)
    if not 1 <= count <= most:
        raise fields.wrong("num_query_tokens", f"must be from 1 to {most}")
    return QueriesConfig(
        num_queries=count,
        d_model=queries.whole("hidden_size", 768),
        num_heads=queries.whole("num_attention_heads", 12),
        d_ff=queries.whole("intermediate_size", 3072),
        num_layers=queries.whole("num_hidden_layers", 12),
        reads_every=queries.whole("cross_attention_frequency", 2),
        style=Style(
            residual="post",
            norm_eps=queries.number("layer_norm_eps", 1e-12),
            activation=queries.among("hidden_act", ACTIVATIONS, "gelu"),
        ),
    )


def starts_and_ends(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the decoder's own part says: generate() hands over to it, and it knows no file."""
    text = config.get("text_config") or {}
    return {name: usual if text.get(name) is None else text[name] for name, usual in _ENDS.items()}


def starts_and_ends_of_t5(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same of a T5."""
    text = config.get("text_config") or {}
    return {name: usual if text.get(name) is None else text[name] for name, usual in _T5_ENDS.items()}


def names(config: Blip2Config) -> Names:
    """OPT's names behind one prefix."""
    return {**layer_names(opt.names(config), "", _LANGUAGE), **_sight_names()}


def names_before_t5(config: Blip2T5Config) -> Names:
    """T5's names behind one prefix."""
    return {**layer_names(t5.names(config), "", _LANGUAGE), **_sight_names()}


def _sight_names() -> Names:
    vision, queries = "vision_model.", "qformer."
    return {
        "tower.class_token": f"{vision}embeddings.class_embedding",
        "tower.positions": without_batch(f"{vision}embeddings.position_embedding"),
        **patches("tower.patches.projection", f"{vision}embeddings.patch_embedding"),
        **layer_names(VISION_LAYER, "tower.encoder.layers.{}.", f"{vision}encoder.layers.{{}}."),
        **both("tower.encoder.norm", f"{vision}post_layernorm"),
        "queries": "query_tokens",
        **both("queries_norm", f"{queries}layernorm"),
        **layer_names(_QUERY_LAYER, "query_layers.{}.", f"{queries}encoder.layer.{{}}."),
        **both("projector", "language_projection"),
    }


def _writes_by_t5(config: Mapping[str, Any]) -> bool:
    text = config.get("text_config")
    return isinstance(text, dict) and text.get("model_type") == "t5"


_QUERY_LAYER: Names = {
    **both_rows("attention.qkv", "attention.attention.{query,key,value}"),
    **both("attention.output", "attention.output.dense"),
    **norm("attention_norm", "attention.output.LayerNorm"),
    **both("cross_attention.query", "crossattention.attention.query"),
    **both("cross_attention.key", "crossattention.attention.key"),
    **both("cross_attention.value", "crossattention.attention.value"),
    **both("cross_attention.output", "crossattention.output.dense"),
    **norm("cross_attention_norm", "crossattention.output.LayerNorm"),
    **both("feed_forward.up_proj", "intermediate_query.dense"),
    **both("feed_forward.down_proj", "output_query.dense"),
    **norm("feed_forward_norm", "output_query.LayerNorm"),
}
BLIP2 = Converter(
    model_type="blip-2",
    architectures=("Blip2ForConditionalGeneration",),
    family="blip2",
    sizes=sizes,
    names=names,
    ignored=(r".*\.position_ids",),
    bias="embeddings.bias",
    nested="text_config",
    fixed=starts_and_ends,
    follows_settings=False,
    is_for=lambda config: not _writes_by_t5(config),
)
BLIP2_T5 = Converter(
    model_type="blip-2",
    architectures=("Blip2ForConditionalGeneration",),
    family="blip2_t5",
    sizes=sizes_before_t5,
    names=names_before_t5,
    ignored=(r".*\.position_ids", *(_LANGUAGE.replace(".", r"\.") + each for each in t5.IGNORED)),
    nested="text_config",
    fixed=starts_and_ends_of_t5,
    follows_settings=False,
    is_for=_writes_by_t5,
)
CONVERTERS = (BLIP2, BLIP2_T5)
