"""ModernBERT (Warner et al. 2024): pre-norm, rotary positions, GeGLU, and most layers see only their surroundings."""

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.encoders import DEFAULT_TEXT, kinds
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.masked_lm_heads import MaskedLmHead
from weft_export.converters.rope import whole_rope_of
from weft_export.converters.sources import Names, both, half, layer_names
from weft_export.families.encoder_only import EncoderOnlyConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.pooling import FIRST, MEAN
from weft_export.layers.positions import Rope
from weft_export.layers.reach import ALL
from weft_export.layers.style import Style

_LOCAL, _GLOBAL = "sliding_attention", "full_attention"


def sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """The first layer has no norm before its attention, because words are normed."""
    fields = hf.fields
    fields.only("position_embedding_type", "absolute", "rope")  # a word that changes nothing
    fields.skip("decoder_bias")  # read for the head
    fields.skip("initializer_cutoff_factor", "layer_norm_eps", "sparse_prediction")
    fields.skip("sparse_pred_ignore_index", "reference_compile", "repad_logits_with_grad", "deterministic_flash_attn")
    fields.skip("tie_word_embeddings")
    d_model, num_heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    max_tokens = hf.max_tokens(fields.whole("max_position_embeddings", 8192), DEFAULT_TEXT)
    kinds = _kinds(hf, fields.whole("num_hidden_layers"))
    rotations = tuple(_rotation(hf, kind, d_model // max(num_heads, 1), max_tokens) for kind in (_GLOBAL, _LOCAL))
    pooling = fields.among("classifier_pooling", {"cls": FIRST, "mean": MEAN}, "cls")
    around = fields.whole("local_attention", 128) // 2
    if not around:
        raise fields.wrong("local_attention", "must be at least 2")
    norm_eps, norm_bias = fields.number("norm_eps", 1e-5), fields.flag("norm_bias", default=False)
    return EncoderOnlyConfig(
        vocab_size=fields.whole("vocab_size"),
        num_labels=fields.num_labels(),
        max_tokens=max_tokens,
        d_model=d_model,
        num_heads=num_heads,
        d_ff=fields.whole("intermediate_size"),
        num_layers=len(kinds),
        style=Style(
            norm_eps=norm_eps,
            norm_bias=norm_bias,
            activation=fields.among("hidden_activation", ACTIVATIONS, "gelu"),
            gated=True,
            bias=fields.flag("attention_bias", default=False),
            feed_forward_bias=fields.flag("mlp_bias", default=False),
        ),
        embeddings=EmbeddingStyle(norm=True, norm_eps=norm_eps, norm_bias=norm_bias),
        rotations=rotations,
        rotation_of=tuple(int(kind == _LOCAL) for kind in kinds),
        windows=tuple(min(around, max_tokens) if kind == _LOCAL else ALL for kind in kinds),
        first_norm=False,
        pooling=FIRST if tags else pooling,
        head_activation=fields.among("classifier_activation", ACTIVATIONS, "gelu"),
        head_bias=fields.flag("classifier_bias", default=False),
        head_norm=True,
    )


def _kinds(hf: HfCheckpoint, num_layers: int) -> list[str]:
    """Return what each layer is. Older configs say every how many layers one sees everything."""
    fields = hf.fields
    every = fields.whole("global_attn_every_n_layers", 3)
    if every < 1:
        raise fields.wrong("global_attn_every_n_layers", "must be at least 1")
    usual = [_LOCAL if index % every else _GLOBAL for index in range(min(num_layers, 100_000))]
    kinds = fields.list("layer_types", usual)
    if len(kinds) != num_layers or not set(kinds) <= {_LOCAL, _GLOBAL}:
        raise fields.wrong("layer_types", f"must have {_LOCAL} or {_GLOBAL} for each layer")
    return kinds


def _rotation(hf: HfCheckpoint, kind: str, head_dim: int, max_tokens: int) -> Rope:
    fields = hf.fields
    name, default = ("global_rope_theta", 160_000.0) if kind == _GLOBAL else ("local_rope_theta", 10_000.0)
    given = fields.part("rope_parameters").part(kind)
    return whole_rope_of(fields, given, head_dim, max_tokens, theta=fields.number(name, default))


def names(_: EncoderOnlyConfig) -> Names:
    """Queries, keys and values lie in one matrix already. What is activated comes before what it gates."""
    return {
        "body.embeddings.tokens.weight": "model.embeddings.tok_embeddings.weight",
        **both("body.embeddings.norm", "model.embeddings.norm"),
        **layer_names(_LAYER, "body.encoder.layers.{}.", "model.layers.{}."),
        **both("body.encoder.norm", "model.final_norm"),
    }


_LAYER: Names = {
    **both("attention.qkv", "attn.Wqkv"),
    **both("attention.output", "attn.Wo"),
    **both("attention_norm", "attn_norm"),
    **{f"feed_forward.gate_proj.{part}": half(0, f"mlp.Wi.{part}") for part in ("weight", "bias")},
    **{f"feed_forward.up_proj.{part}": half(1, f"mlp.Wi.{part}") for part in ("weight", "bias")},
    **both("feed_forward.down_proj", "mlp.Wo"),
    **both("feed_forward_norm", "mlp_norm"),
}


def _words(hf: HfCheckpoint) -> MaskedLmHead:
    return MaskedLmHead("head.dense", "head.norm", "decoder", biased=hf.fields.flag("decoder_bias", default=True))


_HEAD = {**both("head.dense", "head.dense"), **both("head.norm", "head.norm"), **both("head.labels", "classifier")}
MODERNBERT = kinds(
    "modernbert",
    ("ModernBertForSequenceClassification", "ModernBertForTokenClassification"),
    sizes,
    names,
    (_HEAD, _HEAD),
    (r"decoder\.(weight|bias)",),
    prefix="model.",
    spans=_HEAD,
    words=_words,
)
CONVERTERS = MODERNBERT
