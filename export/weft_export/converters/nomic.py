"""NomicBERT (Nussbaum et al. 2024): BERT with rotary positions, gated layers, and no biases but those of norms.

Weights have the names of its authors' files, by which transformers saves them too. It reads no field of such a file.
"""

from torch import Tensor

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.encoders import DEFAULT_TEXT, LABELS, kinds
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.masked_lm_heads import MaskedLmHead
from weft_export.converters.rope import read_rope, rope_dim
from weft_export.converters.sources import Names, both, computed, layer_names
from weft_export.families.encoder_only import EncoderOnlyConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.reach import ALL
from weft_export.layers.style import Style

_BODY = "nomic_bert."
_FALSE = """
causal prenorm parallel_block parallel_block_tied_norm use_rms_norm qkv_proj_bias mlp_fc1_bias mlp_fc2_bias
rotary_emb_interleaved scale_attn_by_inverse_layer_idx
"""
"""Of the authors' fields those that must be false, and those that change nothing."""
_IDLE = """
n_positions dense_seq_output fused_bias_fc fused_dropout_add_ln pad_vocab_size_multiple reorder_and_upcast_attn
summary_activation summary_proj_to_labels summary_type summary_use_proj use_flash_attn use_xentropy type_vocab_size
tie_word_embeddings
"""


def sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """Words and the first segment, normed; post-norm layers, which all turn heads in the same way."""
    fields = hf.fields
    d_model, num_heads = fields.whole("hidden_size", 768), fields.whole("num_attention_heads", 12)
    num_layers, d_ff = fields.whole("num_hidden_layers", 12), fields.whole("intermediate_size", 3072)
    longest, eps = fields.whole("max_position_embeddings", 2048), fields.number("layer_norm_eps", 1e-12)
    head_dim = fields.whole("head_dim", d_model // max(num_heads, 1))
    max_tokens, theta = hf.max_tokens(longest, DEFAULT_TEXT), fields.number("rotary_emb_base", 1000.0)
    rotation = read_rope(fields, head_dim, max_tokens, theta=theta)
    if rope_dim(rotation) != head_dim:
        raise fields.wrong("rope_parameters", "must turn whole heads")
    _check_authors(
        fields,
        n_embd=d_model,
        n_head=num_heads,
        n_layer=num_layers,
        n_inner=d_ff,
        layer_norm_epsilon=eps,
        max_trained_positions=longest,
        rotary_emb_base=1000.0,
    )
    activation = fields.among("hidden_act", ACTIVATIONS, "silu")
    return EncoderOnlyConfig(
        vocab_size=fields.whole("vocab_size", 30528),
        num_labels=fields.num_labels(),
        max_tokens=max_tokens,
        d_model=d_model,
        num_heads=num_heads,
        d_ff=d_ff,
        num_layers=num_layers,
        style=Style(residual="post", norm_eps=eps, activation=activation, gated=True, bias=False, head_dim=head_dim),
        embeddings=EmbeddingStyle(positions=True, norm=True, norm_eps=eps),
        rotations=(rotation,),
        rotation_of=(0,) * num_layers,
        windows=(ALL,) * num_layers,
        head_activation=None if tags else "tanh",
    )


def _check_authors(fields: Fields, **same: float) -> None:
    """Refuse fields of the authors' files that say another thing than those that transformers reads."""
    for name, value in same.items():
        fields.only(name, value)
    for name in _FALSE.split():
        fields.only(name, False)
    fields.only("scale_attn_weights", True)
    fields.only("activation_function", "swiglu")
    fields.only("rotary_emb_fraction", 1.0)
    fields.only("rotary_scaling_factor")
    fields.only("rotary_emb_scale_base")
    fields.skip(*_IDLE.split())


def names(config: EncoderOnlyConfig) -> Names:
    """Places have no vectors: in their stead, each has that of the first segment."""
    tokens, types = (f"{_BODY}embeddings.{kind}_embeddings.weight" for kind in ("word", "token_type"))

    def of_segment(_: Tensor, segments: Tensor) -> Tensor:
        return segments[:1].expand(config.max_tokens, -1).contiguous()

    ours, theirs = "body.encoder.layers.{}.", _BODY + "encoder.layers.{}."
    return {
        "body.embeddings.tokens.weight": tokens,
        # Of two tables, as pairs.py looks for segments.
        "body.embeddings.positions.weight": computed(of_segment, tokens, types),
        **both("body.embeddings.norm", f"{_BODY}emb_ln"),
        **layer_names(_LAYER, ours, theirs),
    }


_LAYER: Names = {
    "attention.qkv.weight": "attn.Wqkv.weight",
    "attention.output.weight": "attn.out_proj.weight",
    **both("attention_norm", "norm1"),
    "feed_forward.gate_proj.weight": "mlp.fc12.weight",
    "feed_forward.up_proj.weight": "mlp.fc11.weight",
    "feed_forward.down_proj.weight": "mlp.fc2.weight",
    **both("feed_forward_norm", "norm2"),
}
_HEAD = MaskedLmHead(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.layer_norm",
    "cls.predictions.decoder",
    "cls.predictions.bias",
)
NOMIC = kinds(
    "nomic_bert",
    ("NomicBertForSequenceClassification", "NomicBertForTokenClassification"),
    sizes,
    names,
    ({**both("head.dense", f"{_BODY}pooler.dense"), **LABELS}, LABELS),
    (r"nomic_bert\.pooler\..*", r"cls\..*"),
    words=_HEAD,
)
# transformers has no class of it that extracts answers.
CONVERTERS = tuple(each for each in NOMIC if each.family != "encoder_only_extractor")
