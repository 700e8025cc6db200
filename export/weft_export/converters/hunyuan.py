"""Hunyuan of 0.5 to 7 billion weights (Tencent 2025): Llama's layers, whose heads are normed after they are turned."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import llama_style, padded, read_sizes, read_words, turned
from weft_export.converters.fields import Fields
from weft_export.converters.llama import LLAMA, llama_names
from weft_export.converters.rope import whole_rope_of
from weft_export.converters.sources import Names
from weft_export.families.decoder_only import DecoderOnlyConfig

_LAYER, _THEIRS = "layers.{}", "model.layers.{}"
# Of a rotation with an alpha: what its code does not read.
_UNREAD = ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "original_max_position_embeddings")


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Llama's, and norms of heads."""
    fields = hf.fields
    # The released configs say it, and transformers does not read it.
    fields.only("use_qk_norm", True)
    fields.only("use_cla", False)
    fields.skip("eod_token_id")
    bias = fields.flag("attention_bias", default=False)
    style = llama_style(hf, norm_eps=1e-5, bias=bias, feed_forward_bias=False, qk_norm=True)
    words = read_words(hf, tied=False)
    config = replace(read_sizes(hf, style, words, absent={"intermediate_size": 11008}), norms_turned=True)
    parameters, scaling = fields.part("rope_parameters"), fields.part("rope_scaling")
    given = parameters if "rope_type" in parameters or "rope_theta" in parameters else scaling
    is_dynamic = "dynamic" in (given.raw("rope_type"), given.raw("type"))
    return _stretched(fields, given, config) if is_dynamic and given.raw("alpha") else turned(hf, config)


def _stretched(fields: Fields, given: Fields, config: DecoderOnlyConfig) -> DecoderOnlyConfig:
    """Return sizes with a rotation whose base is stretched once for all, which only the name has of a dynamic one."""
    given.skip(*_UNREAD)
    head_dim = config.head_dim
    theta = given.positive("rope_theta", fields.positive("rope_theta", 10000.0))
    theta *= given.positive("alpha") ** (head_dim / (head_dim - 2))
    rotation = whole_rope_of(fields, Fields({}), head_dim, config.max_tokens, theta=theta)
    return replace(config, rotations=(padded(rotation, config),))


def names(config: DecoderOnlyConfig) -> Names:
    """Llama's, and the norms of heads."""
    ours, theirs = f"{_LAYER}.attention.turned_norm", f"{_THEIRS}.self_attn"
    return {
        **llama_names(config),
        f"{ours}.query.weight": f"{theirs}.query_layernorm.weight",
        f"{ours}.key.weight": f"{theirs}.key_layernorm.weight",
    }


HUNYUAN = replace(
    LLAMA, model_type="hunyuan_v1_dense", architectures=("HunYuanDenseV1ForCausalLM",), sizes=sizes, names=names
)
CONVERTERS = (HUNYUAN,)
