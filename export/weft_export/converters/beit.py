"""BEiT (Bao et al. 2022)."""

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.pictures import (
    patches,
    picture_sizes,
    scaled,
    skip_backbone,
    squares_only,
    vit_layer,
    without_batch,
)
from weft_export.converters.sources import Names, Source, both, layer_names, with_zero_keys
from weft_export.families.beit import BeitConfig


def sizes(hf: HfCheckpoint) -> BeitConfig:
    """Pre-norm layers with a bias for each offset, layer scale, and keys without a bias."""
    fields = hf.fields
    pictures = picture_sizes(hf)
    squares_only(pictures, "BEiT")
    if fields.number("layer_scale_init_value", 0.1) <= 0:
        raise fields.wrong("layer_scale_init_value", "must be more than 0: layers without a scale are not supported")
    skip_backbone(fields)
    # For pre-training and for segmentation.
    fields.skip("vocab_size", "use_mask_token", "pool_scales", "add_fpn", "reshape_hidden_states")
    fields.skip("use_auxiliary_head", "auxiliary_loss_weight", "auxiliary_channels", "auxiliary_num_convs")
    fields.skip("auxiliary_concat_input", "semantic_loss_ignore_index")
    return BeitConfig(
        **pictures,
        d_model=fields.whole("hidden_size", 768),
        num_heads=fields.whole("num_attention_heads", 12),
        d_ff=fields.whole("intermediate_size", 3072),
        num_layers=fields.whole("num_hidden_layers", 12),
        mean_pooling=fields.flag("use_mean_pooling", default=True),
        layer_biases=fields.flag("use_relative_position_bias", default=False),
        shared_biases=fields.flag("use_shared_relative_position_bias", default=False),
        absolute_positions=fields.flag("use_absolute_position_embeddings", default=False),
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        activation=fields.among("hidden_act", ACTIVATIONS, "gelu"),
    )


def names(config: BeitConfig) -> Names:
    """Their names; a layer's scale is folded into what it multiplies."""
    theirs = "beit.encoder.layer.{}"
    attention = f"{theirs}.attention.attention"
    layer: dict[str, Source | str] = {
        **vit_layer(theirs),
        "attention.qkv.bias": with_zero_keys(f"{attention}.query.bias", f"{attention}.value.bias"),
        **scaled("attention.output", f"{theirs}.attention.output.dense", f"{theirs}.lambda_1"),
        **scaled("feed_forward.down_proj", f"{theirs}.output.dense", f"{theirs}.lambda_2"),
    }
    table = "relative_position_bias.relative_position_bias_table"
    return {
        "class_token": "beit.embeddings.cls_token",
        "positions": without_batch("beit.embeddings.position_embeddings"),
        **patches("patches.projection", "beit.embeddings.patch_embeddings.projection"),
        **layer_names(layer, "layers.{}.", ""),
        "biases.{}.table": f"{attention}.{table}",
        "shared_bias.table": f"beit.encoder.{table}",
        **both("norm", "beit.pooler.layernorm" if config.mean_pooling else "beit.layernorm"),
        **both("head", "classifier"),
    }


BEIT = Converter(
    model_type="beit",
    architectures=("BeitForImageClassification",),
    family="beit",
    sizes=sizes,
    names=names,
    ignored=(r"beit\.embeddings\.mask_token", r".*\.relative_position_index"),
)
CONVERTERS = (BEIT,)
