"""Qwen3-VL (Bai et al. 2025): an encoder of cells that is read at several layers, before Qwen 3's decoder."""

from collections.abc import Callable, Mapping
from dataclasses import fields as fields_of
from dataclasses import replace
from math import isqrt

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import llama_style, turned_sizes
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.llama import qwen3_names
from weft_export.converters.pictures import read_picture_spec
from weft_export.converters.qwen_vl import QWEN2_VL, cell_sizes, check_width, rope_of, sections_of
from weft_export.converters.sight import with_room
from weft_export.converters.sources import Names, Source, both, computed, renamed
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.families.qwen3_vl import DeepSightConfig, Qwen3VlConfig
from weft_proto.v1 import bundle_pb2

# What the decoder's class takes where text_config says nothing.
_ABSENT = {"vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
_ABSENT_SIZES = {"num_key_value_heads": 32, "intermediate_size": 22016, "head_dim": 128}


def sizes(hf: HfCheckpoint) -> Qwen3VlConfig:
    """Return those of the dense decoder."""
    return sizes_with(hf, _decoder, _ABSENT, "qwen3_vl_text")


def sizes_with(
    hf: HfCheckpoint,
    read_decoder: Callable[[HfCheckpoint], DecoderOnlyConfig],
    absent: Mapping[str, int],
    usual: str,
) -> Qwen3VlConfig:
    """Two objects of config.json describe the two sides. The largest picture fits.

    read_decoder: reads text_config. What it lacks is in absent.
    usual: the decoder's kind where nothing says it.
    """
    fields = hf.fields
    fields.skip("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    for part in ("text_config", "vision_config"):
        if part not in fields:
            raise fields.wrong(part, "must be an object: it says what one side of the model is")
    text, vision = fields.part("text_config"), fields.part("vision_config")
    image = read_picture_spec(hf, vision.whole("in_channels", 3))
    image.grid_rows = image.grid_columns = 1
    for name, value in absent.items():
        text.take_for_granted(name, value)
    decoder = read_decoder(replace(with_room(hf, text, image, usual), fields=text))
    tied = fields.flag("tie_word_embeddings", default=False)
    decoder = replace(decoder, embeddings=replace(decoder.embeddings, tied=tied))
    rope_of(text).only("mrope_interleaved", True)
    return Qwen3VlConfig(
        **{field.name: getattr(decoder, field.name) for field in fields_of(DecoderOnlyConfig)},
        sections=sections_of(text, decoder.head_dim, (24, 20, 20)),
        interleaved=True,
        sight=_sight(hf, vision, decoder.d_model, image),
    )


def _decoder(text: HfCheckpoint) -> DecoderOnlyConfig:
    bias = text.fields.flag("attention_bias", default=False)
    style = llama_style(text, qk_norm=True, bias=bias, feed_forward_bias=False)
    return turned_sizes(text, style, absent=_ABSENT_SIZES, theta=500000.0)


def _sight(hf: HfCheckpoint, vision: Fields, d_out: int, image: bundle_pb2.ImageSpec) -> DeepSightConfig:
    check_width(vision, "out_hidden_size", 3584, d_out)
    places = vision.whole("num_position_embeddings", 2304)
    if not places or isqrt(places) ** 2 != places:
        raise vision.wrong("num_position_embeddings", "must be a square")
    deep = vision.list("deepstack_visual_indexes", [8, 16, 24])
    sizes = cell_sizes(hf, vision, image, patch_size=16, depth=27)
    if not deep or not all(type(each) is int and 0 <= each < sizes["num_layers"] for each in deep):
        raise vision.wrong("deepstack_visual_indexes", f"must be of {sizes['num_layers']} layers")
    if deep != sorted({*deep}):
        raise vision.wrong("deepstack_visual_indexes", "must ascend")
    return DeepSightConfig(
        **sizes,
        d_model=vision.whole("hidden_size", 1152),
        d_ff=vision.whole("intermediate_size", 4304),
        activation=vision.among("hidden_act", ACTIVATIONS, "gelu_pytorch_tanh"),
        position_side=isqrt(places),
        deep_layers=tuple(each + 1 for each in deep),
    )


def names(config: Qwen3VlConfig) -> Names:
    """Qwen 3's names for the decoder, behind one prefix but for the head. A picture's two frames are equal."""
    layer, theirs, visual = "tower.layers.{}", "model.visual.blocks.{}", "model.visual"
    side = config.sight.position_side
    table: dict[str, Source | str] = {
        **renamed(qwen3_names(config), _theirs),
        "tower.patches.weight": computed(
            lambda kernel: kernel.sum(dim=2).flatten(1), f"{visual}.patch_embed.proj.weight"
        ),
        "tower.patches.bias": f"{visual}.patch_embed.proj.bias",
        "tower.positions": computed(lambda table: table.unflatten(0, (side, side)), f"{visual}.pos_embed.weight"),
        **both(f"{layer}.attention_norm", f"{theirs}.norm1"),
        **both(f"{layer}.attention.qkv", f"{theirs}.attn.qkv"),
        **both(f"{layer}.attention.output", f"{theirs}.attn.proj"),
        **both(f"{layer}.feed_forward_norm", f"{theirs}.norm2"),
        **both(f"{layer}.feed_forward.up_proj", f"{theirs}.mlp.linear_fc1"),
        **both(f"{layer}.feed_forward.down_proj", f"{theirs}.mlp.linear_fc2"),
    }
    mergers = {"tower.mergers.{}": f"{visual}.deepstack_merger_list.{{}}", "tower": f"{visual}.merger"}
    for ours, merger in mergers.items():
        table |= both(f"{ours}.norm", f"{merger}.norm")
        table |= both(f"{ours}.linear_1", f"{merger}.linear_fc1")
        table |= both(f"{ours}.linear_2", f"{merger}.linear_fc2")
    return table


def _theirs(name: str) -> str:
    return f"model.language_model.{name.removeprefix('model.')}" if name.startswith("model.") else name


QWEN3_VL: Converter = replace(
    QWEN2_VL,
    model_type="qwen3_vl",
    architectures=("Qwen3VLForConditionalGeneration",),
    family="qwen3_vl",
    sizes=sizes,
    names=names,
    spellings=(),
)
CONVERTERS = (QWEN3_VL,)
