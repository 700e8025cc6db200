"""ResNet (He et al. 2016)."""

import torch

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.pictures import label_sizes, read_picture_spec, skip_backbone
from weft_export.converters.sources import Names, Source, both
from weft_export.families.resnet import ResnetConfig


def sizes(hf: HfCheckpoint) -> ResnetConfig:
    """Any size of pictures: the one that the image processor makes."""
    fields = hf.fields
    fields.only("hidden_act", "relu")
    skip_backbone(fields)
    channels = fields.whole("num_channels", 3)
    pictures = read_picture_spec(hf, channels)
    return ResnetConfig(
        **label_sizes(hf),
        channels=channels,
        image_height=pictures.height,
        image_width=pictures.width,
        widths=(fields.whole("embedding_size", 64), *fields.list("hidden_sizes", [256, 512, 1024, 2048])),
        depths=tuple(fields.list("depths", [3, 4, 6, 3])),
        bottleneck=fields.among("layer_type", {"basic": "", "bottleneck": "yes"}, "bottleneck") == "yes",
        halves_first=fields.flag("downsample_in_bottleneck", default=False),
        first_stage_halves=fields.flag("downsample_in_first_stage", default=False),
    )


def names(config: ResnetConfig) -> Names:
    """Their names, by stage; ours count the blocks of all stages together."""
    parts = ("reduce", "middle", "expand") if config.bottleneck else ("first", "second")
    table: dict[str, Source | str] = {
        **_convolution("stem", "resnet.embedder.embedder"),
        **both("head", "classifier.1"),
    }
    place = 0
    for stage, depth in enumerate(config.depths):
        for block in range(depth):
            ours, theirs = f"stages.{place + block}", f"resnet.encoder.stages.{stage}.layers.{block}"
            for number, part in enumerate(parts):
                table |= _convolution(f"{ours}.{part}", f"{theirs}.layer.{number}")
            table |= _convolution(f"{ours}.shortcut", f"{theirs}.shortcut")
        place += depth
    return table


def _convolution(ours: str, theirs: str) -> Names:
    return {
        f"{ours}.convolution.weight": f"{theirs}.convolution.weight",
        **both(f"{ours}.norm", f"{theirs}.normalization", "weight", "bias", "running_mean", "running_var"),
        # Of training. Some files lack it.
        f"{ours}.norm.num_batches_tracked": Source((), lambda: torch.tensor(0)),
    }


RESNET = Converter(
    model_type="resnet",
    architectures=("ResNetForImageClassification",),
    family="resnet",
    sizes=sizes,
    names=names,
    ignored=(r".*\.num_batches_tracked",),
)
CONVERTERS = (RESNET,)
