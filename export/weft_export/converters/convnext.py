"""ConvNeXt (Liu et al. 2022)."""

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.pictures import label_sizes, read_picture_spec, scaled, skip_backbone
from weft_export.converters.sources import Names, Source, both
from weft_export.families.convnext import ConvNextConfig


def sizes(hf: HfCheckpoint) -> ConvNextConfig:
    """Any size of pictures: the one that the image processor makes."""
    fields = hf.fields
    if fields.number("layer_scale_init_value", 1e-6) <= 0:
        raise fields.wrong("layer_scale_init_value", "must be more than 0: blocks without a scale are not supported")
    widths = tuple(fields.list("hidden_sizes", [96, 192, 384, 768]))
    fields.only("num_stages", len(widths))
    skip_backbone(fields)
    # It is for who interpolates weights; ours depend on no size.
    fields.skip("image_size")
    channels = fields.whole("num_channels", 3)
    pictures = read_picture_spec(hf, channels)
    return ConvNextConfig(
        **label_sizes(hf),
        channels=channels,
        image_height=pictures.height,
        image_width=pictures.width,
        patch_size=fields.whole("patch_size", 4),
        widths=widths,
        depths=tuple(fields.list("depths", [3, 3, 9, 3])),
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        activation=fields.among("hidden_act", ACTIVATIONS, "gelu"),
    )


def names(config: ConvNextConfig) -> Names:
    """Their names, by stage; ours count the parts of all stages together."""
    table: dict[str, Source | str] = {
        **both("stages.0", "convnext.embeddings.patch_embeddings"),
        **both("stages.1", "convnext.embeddings.layernorm"),
        **both("norm", "convnext.layernorm"),
        **both("head", "classifier"),
    }
    place = 2
    for stage, depth in enumerate(config.depths):
        theirs = f"convnext.encoder.stages.{stage}"
        if stage > 0:
            table |= both(f"stages.{place}", f"{theirs}.downsampling_layer.0")
            table |= both(f"stages.{place + 1}", f"{theirs}.downsampling_layer.1")
            place += 2
        for block in range(depth):
            table |= _block(f"stages.{place + block}", f"{theirs}.layers.{block}")
        place += depth
    return table


def _block(ours: str, theirs: str) -> Names:
    return {
        **both(f"{ours}.depthwise", f"{theirs}.dwconv"),
        **both(f"{ours}.norm", f"{theirs}.layernorm"),
        **both(f"{ours}.feed_forward.up_proj", f"{theirs}.pwconv1"),
        **scaled(f"{ours}.feed_forward.down_proj", f"{theirs}.pwconv2", f"{theirs}.layer_scale_parameter"),
    }


CONVNEXT = Converter(
    model_type="convnext",
    architectures=("ConvNextForImageClassification",),
    family="convnext",
    sizes=sizes,
    names=names,
)
CONVERTERS = (CONVNEXT,)
