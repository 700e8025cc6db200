"""Qwen2-VL (Wang et al. 2024) and Qwen2.5-VL (Bai et al. 2025): an encoder of cells before Qwen2's decoder."""

from collections.abc import Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import llama_style, turned_sizes
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.llama import llama_names, windowed_later
from weft_export.converters.pictures import read_picture_spec
from weft_export.converters.processor_keys import read_processor
from weft_export.converters.sight import with_room
from weft_export.converters.sources import Names, Source, both, computed
from weft_export.errors import CheckpointError
from weft_export.families.decoder_only import ALL, DecoderOnlyConfig
from weft_export.families.qwen_vl import CellSightConfig, QwenVlConfig
from weft_proto.tiling import most_places
from weft_proto.v1 import bundle_pb2

# What their classes take where text_config says nothing.
_ABSENT = {
    "vocab_size": 152064,
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "max_position_embeddings": 32768,
}
_SECTIONS = [16, 24, 24]
_SECOND = "qwen2_5_vl"
# transformers writes what its first files have. In memory, and in what others save of it, the decoder stands beside
# what sees.
_SPELLINGS = ((r"^model\.language_model\.", "model."), (r"^model\.visual\.", "visual."))


def sizes(hf: HfCheckpoint) -> QwenVlConfig:
    """Two objects describe the two sides; in older files, the top is the decoder's. The largest picture fits."""
    fields = hf.fields
    fields.skip("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id", "vision_token_id")
    if "vision_config" not in fields:
        raise fields.wrong("vision_config", "must be an object: it says what sees pictures")
    vision = fields.part("vision_config")
    text = fields.part("text_config") if "text_config" in fields else fields
    image = read_picture_spec(hf, vision.whole("in_channels", 3))
    image.grid_rows = image.grid_columns = 1
    for name, value in _ABSENT.items():
        text.take_for_granted(name, value)
    decoder = _decoder(with_room(hf, text, image, "qwen2"), text)
    return QwenVlConfig(
        **{field.name: getattr(decoder, field.name) for field in fields_of(DecoderOnlyConfig)},
        sections=sections_of(text, decoder.head_dim),
        sight=_sight(hf, vision, decoder.d_model, image),
    )


def rope_of(text: Fields) -> Fields:
    """Return the object that says how a decoder turns."""
    parameters, scaling = text.part("rope_parameters"), text.part("rope_scaling")
    return parameters if "rope_type" in parameters or "rope_theta" in parameters else scaling


def _decoder(hf: HfCheckpoint, text: Fields) -> DecoderOnlyConfig:
    own = replace(hf, fields=text)
    style = llama_style(own, 1e-5, qkv_bias=True)
    absent = {"num_key_value_heads": 8, "intermediate_size": 29568}
    config = windowed_later(own, turned_sizes(own, style, absent=absent, theta=1e6), 80)
    tied = hf.fields.flag("tie_word_embeddings", default=False) or config.embeddings.tied
    return replace(config, embeddings=replace(config.embeddings, tied=tied))


def sections_of(text: Fields, head_dim: int, usual: Sequence[int] = _SECTIONS) -> tuple[int, ...]:
    """Return how many pairs of a head turn by each of a token's positions.

    usual: what they are where config.json does not say it.
    """
    given = rope_of(text)
    sections = given.list("mrope_section", [*usual])
    if not all(type(each) is int and each > 0 for each in sections) or sum(sections) != head_dim // 2:
        raise given.wrong("mrope_section", f"must be whole numbers whose sum is {head_dim // 2}, half of a head")
    return tuple(sections)


def cell_sizes(
    hf: HfCheckpoint, vision: Fields, image: bundle_pb2.ImageSpec, *, patch_size: int = 14, depth: int = 32
) -> dict[str, Any]:
    """Return what encoders of cells have in common, by the names of CellSightConfig.

    patch_size, depth: what they are where config.json does not say it.
    """
    vision.only("temporal_patch_size", 2)
    rotation = vision.part("rope_parameters")
    rotation.only("rope_type", "axial")
    side, cell = vision.sides("patch_size", patch_size), vision.whole("spatial_merge_size", 2)
    place, given = read_processor(hf, "image_processor")
    theirs = given.get("patch_size", 14), given.get("merge_size", 2)
    if (side[0], side[0], cell) != (side[1], *theirs):
        made = f"{place} has patch_size {theirs[0]} and merge_size {theirs[1]}"
        raise CheckpointError(f"config.json: patches of {side[0]} x {side[1]}, {cell} down and across; and {made}")
    return {
        "channels": image.channels,
        "patch_size": side[0],
        "cell": cell,
        "max_places": most_places(image),
        "num_heads": vision.whole("num_heads", 16),
        "num_layers": vision.whole("depth", depth),
        "rope_theta": rotation.positive("rope_theta", 10000.0),
    }


def _sight(hf: HfCheckpoint, vision: Fields, d_out: int, image: bundle_pb2.ImageSpec) -> CellSightConfig:
    is_second = hf.fields.word("model_type") == _SECOND
    # The first two stand in older files, and are not read. How fast a video is does not matter to a picture.
    vision.skip("in_chans", "spatial_patch_size", "tokens_per_second", "out_hidden_size" if not is_second else "")
    usual = cell_sizes(hf, vision, image)
    usual["activation"] = vision.among("hidden_act", ACTIVATIONS, "silu" if is_second else "quick_gelu")
    if not is_second:
        width = vision.whole("embed_dim", 1280)
        check_width(vision, "hidden_size", 3584, d_out)
        return CellSightConfig(**usual, d_model=width, d_ff=int(width * vision.number("mlp_ratio", 4)))
    check_width(vision, "out_hidden_size", 3584, d_out)
    full = vision.list("fullatt_block_indexes", [7, 15, 23, 31])
    window = vision.whole("window_size", 112) // usual["cell"] // usual["patch_size"]
    if window < 1 or not all(type(each) is int and 0 <= each < usual["num_layers"] for each in full):
        raise vision.wrong("fullatt_block_indexes", "must be of layers, and window_size at least that of a place")
    return CellSightConfig(
        **usual,
        d_model=vision.whole("hidden_size", 3584),
        d_ff=vision.whole("intermediate_size", 3420),
        gated=True,
        rms_norm=True,
        windows=tuple(ALL if layer in full else window for layer in range(usual["num_layers"])),
    )


def check_width(vision: Fields, name: str, usual: int, d_model: int) -> None:
    """Raise CheckpointError unless what is made of a place of a picture is as wide as a word."""
    if vision.whole(name, usual) != d_model:
        raise vision.wrong(name, f"must be {d_model}, that of the decoder's words")


def names(config: QwenVlConfig) -> Names:
    """Llama's names for the decoder. A picture's two frames are equal, so their kernels are added."""
    layer, theirs, merger = "tower.layers.{}", "visual.blocks.{}", "visual.merger"
    table: dict[str, Source | str] = {
        **llama_names(config),
        "tower.patches.weight": computed(lambda kernel: kernel.sum(dim=2).flatten(1), "visual.patch_embed.proj.weight"),
        **both(f"{layer}.attention.qkv", f"{theirs}.attn.qkv"),
        **both(f"{layer}.attention.output", f"{theirs}.attn.proj"),
        **both("tower.linear_1", f"{merger}.mlp.0"),
        **both("tower.linear_2", f"{merger}.mlp.2"),
    }
    norms = {
        f"{layer}.attention_norm": f"{theirs}.norm1",
        f"{layer}.feed_forward_norm": f"{theirs}.norm2",
        "tower.norm": f"{merger}.ln_q",
    }
    for ours, each in norms.items():
        table |= {f"{ours}.weight": f"{each}.weight"} if config.sight.rms_norm else both(ours, each)
    plain, gated = {"up_proj": "fc1", "down_proj": "fc2"}, ("gate_proj", "up_proj", "down_proj")
    for ours, each in zip(gated, gated, strict=True) if config.sight.gated else plain.items():
        table |= both(f"{layer}.feed_forward.{ours}", f"{theirs}.mlp.{each}")
    return table


QWEN2_VL = Converter(
    model_type="qwen2_vl",
    architectures=("Qwen2VLForConditionalGeneration",),
    family="qwen_vl",
    sizes=sizes,
    names=names,
    spellings=_SPELLINGS,
    ignored=(r".*\.rotary_emb\.inv_freq", r".*\.rotary_pos_emb\.inv_freq"),
    bias="embeddings.bias",
    nested="text_config",
)
QWEN2_5_VL: Converter = replace(QWEN2_VL, model_type=_SECOND, architectures=("Qwen2_5_VLForConditionalGeneration",))
CONVERTERS = (QWEN2_VL, QWEN2_5_VL)
