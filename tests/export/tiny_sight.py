"""A tiny random generator whose prompts may hold pictures, as LLaVA's."""

from dataclasses import fields, replace

from tiny_parts import byte_tokenizer, image_spec, picture, randomised
from tokenizers import AddedToken, Tokenizer, processors

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.bidirectional import BidirectionalDecoder
from weft_export.families.blip2 import Blip2, Blip2Config, QueriesConfig, QuerySightConfig
from weft_export.families.decoder_only import ALL, DecoderOnlyConfig
from weft_export.families.gemma3 import Gemma3, Gemma3Config
from weft_export.families.idefics3 import Idefics3, Idefics3Config, ShuffledSightConfig
from weft_export.families.llava import Llava, LlavaConfig, SightConfig
from weft_export.families.llava_onevision import LlavaOnevision, LlavaOnevisionConfig, TileSightConfig
from weft_export.families.paligemma import PaliGemma, PaliGemmaConfig, PatchSightConfig
from weft_export.families.qwen3_vl import DeepSightConfig, Qwen3Vl, Qwen3VlConfig
from weft_export.families.qwen_vl import CellSightConfig, QwenVl, QwenVlConfig
from weft_export.families.siglip import MergedSightConfig, SiglipSizes
from weft_export.families.vit import VitSizes
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.positions import Rope
from weft_export.layers.style import Style
from weft_proto.tiling import most_places
from weft_proto.v1 import bundle_pb2

VOCABULARY, IMAGE_ID, BOS_ID = 304, 300, 301
NUM_PLACES = 24
NUM_QUERIES = 5
MAX_TOKENS = 128
TILE, TILE_PLACES, MAX_TILED_TOKENS = 16, 16, 192
TILING = bundle_pb2.TilingSpec(
    grids=[bundle_pb2.TileGrid(rows=rows, columns=columns) for rows in (1, 2) for columns in (1, 2)],
    max_tiles=2,
    square_padding=[10, 20, 30],
)
SPLIT_PLACES, MAX_SPLIT_TOKENS = 4, 384
SPLITTING = bundle_pb2.TilingSpec(
    longest_edge=2 * TILE + 8,
    before_tile="[{row}/{column}]",
    behind_row="\n",
    behind_tiles="\n",
    before_whole="[all]",
    behind_whole="[end]",
)
CELL, MAX_CELLED_TOKENS = 8, 192
CELLS = bundle_pb2.TilingSpec(max_pixels=20 * CELL**2, min_pixels=4 * CELL**2)
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ message['role'] ~ ': ' }}
{%- for part in message['content'] %}{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}
{%- if not loop.last %}{{ ' ' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ ' assistant:' }}{% endif %}"""


def tokenizer() -> bytes:
    """Return a tokenizer of bytes that begins a text with <s>, and knows <image>."""
    made = Tokenizer.from_buffer(byte_tokenizer())
    made.add_special_tokens([AddedToken(each, normalized=False, special=True) for each in ("<image>", "<s>")])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS_ID)])
    return made.to_str().encode()


def tiny_llava() -> Checkpoint:
    """Return a Llama that sees pictures of 24 x 16 in 4 rows of 6 places."""
    config = LlavaConfig(
        vocab_size=VOCABULARY,
        max_tokens=MAX_TOKENS,
        d_model=32,
        num_heads=2,
        num_kv_heads=1,
        d_ff=48,
        num_layers=2,
        style=Style(rms_norm=True, activation="silu", gated=True, bias=False),
        embeddings=EmbeddingStyle(tied=False),
        rotations=(Rope(tuple(100.0 ** (-pair / 8) for pair in range(8))),),
        sight=SightConfig(
            channels=3,
            image_height=16,
            image_width=24,
            patch_size=4,
            d_model=24,
            num_heads=2,
            d_ff=40,
            num_layers=2,
            feature_layers=(1,),
        ),
    )
    return Checkpoint(
        family="llava",
        description="A random generator that sees, for tests.",
        model=randomised(Llava(config)),
        golden=bundle_pb2.Golden(image_path="golden.png", question="the cat in the house"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            target_tokenizer="tokenizer.json",
            source_vocab_size=VOCABULARY,
            target_vocab_size=VOCABULARY,
            end_ids=[1],
            pad_id=0,
            max_total_tokens=MAX_TOKENS,
            max_new_tokens=MAX_TOKENS - 1,
            image_id=IMAGE_ID,
            chat=bundle_pb2.ChatSpec(template="chat_template.jinja", bos_token="<s>", eos_token="<end>"),
        ),
        image=image_spec(3, 16, 24, 4),
        max_new_tokens=24,
        attention_layer=1,
        files={
            "tokenizer.json": tokenizer(),
            "chat_template.jinja": CHAT_TEMPLATE.encode(),
            "golden.png": picture(30, 22),
        },
    )


def tiny_tiles() -> Checkpoint:
    """Return the same with tiles of 16 x 16, in up to 2 x 2 of which a picture is read: of two, places are joined."""
    plain = tiny_llava()
    own = {field.name: getattr(plain.model.config, field.name) for field in fields(DecoderOnlyConfig)}
    sizes = TileSightConfig(
        channels=3,
        image_height=TILE,
        image_width=TILE,
        patch_size=4,
        d_model=24,
        num_heads=2,
        d_ff=40,
        num_layers=2,
        feature_layers=(2,),
    )
    image = image_spec(3, TILE, TILE, 4)
    image.tiling.CopyFrom(TILING)
    text = bundle_pb2.TextSpec()
    text.CopyFrom(plain.text)
    text.max_total_tokens, text.max_new_tokens = MAX_TILED_TOKENS, MAX_TILED_TOKENS - 1
    return replace(
        plain,
        family="llava_onevision",
        description="A random generator that reads tiles, for tests.",
        model=randomised(LlavaOnevision(LlavaOnevisionConfig(**own | {"max_tokens": MAX_TILED_TOKENS}, sight=sizes))),
        text=text,
        image=image,
        files={**plain.files, "golden.png": picture(40, 22)},
    )


def tiny_split() -> Checkpoint:
    """Return the same with tiles of 16 x 16 in 2 x 2 places, by their longest edge: a picture has up to 3 x 3."""
    plain = tiny_tiles()
    tower = SiglipSizes(
        channels=3, image_height=TILE, image_width=TILE, patch_size=4, d_model=24, num_heads=2, d_ff=40, num_layers=2
    )
    own = {field.name: getattr(plain.model.config, field.name) for field in fields(DecoderOnlyConfig)}
    own |= {"max_tokens": MAX_SPLIT_TOKENS, "sight": ShuffledSightConfig(tower=tower, cell=2)}
    image = image_spec(3, TILE, TILE, 8)
    image.tiling.CopyFrom(SPLITTING)
    text = bundle_pb2.TextSpec()
    text.CopyFrom(plain.text)
    text.max_total_tokens, text.max_new_tokens = MAX_SPLIT_TOKENS, MAX_SPLIT_TOKENS - 1
    return replace(
        plain,
        family="idefics3",
        description="A random generator that splits pictures, for tests.",
        model=randomised(Idefics3(Idefics3Config(**own))),
        text=text,
        image=image,
    )


def tiny_cells() -> Checkpoint:
    """Return the same with cells of 8 x 8, of which a picture has as many as fit its size. One layer sees them all."""
    plain = tiny_llava()
    image = image_spec(3, CELL, CELL, CELL)
    image.tiling.CopyFrom(CELLS)
    own = {field.name: getattr(plain.model.config, field.name) for field in fields(DecoderOnlyConfig)}
    own |= {"max_tokens": MAX_CELLED_TOKENS, "sections": (2, 3, 3)}
    own["sight"] = CellSightConfig(
        channels=3,
        patch_size=4,
        cell=2,
        max_places=most_places(image),
        d_model=24,
        num_heads=2,
        d_ff=40,
        num_layers=2,
        activation="silu",
        gated=True,
        rms_norm=True,
        windows=(2, ALL),
    )
    text = bundle_pb2.TextSpec()
    text.CopyFrom(plain.text)
    text.max_total_tokens, text.max_new_tokens = MAX_CELLED_TOKENS, MAX_CELLED_TOKENS - 1
    return replace(
        plain,
        family="qwen_vl",
        description="A random generator that reads cells, for tests.",
        model=randomised(QwenVl(QwenVlConfig(**own))),
        text=text,
        image=image,
    )


def tiny_deep() -> Checkpoint:
    """Return the same, of which the decoder reads two layers of the encoder, and pairs turn one by one."""
    cells = tiny_cells()
    own = {field.name: getattr(cells.model.config, field.name) for field in fields(QwenVlConfig)}
    sight = {field.name: getattr(own["sight"], field.name) for field in fields(CellSightConfig)}
    sight |= {"num_layers": 3, "gated": False, "rms_norm": False, "windows": (), "activation": "gelu_tanh"}
    own["sight"] = DeepSightConfig(**sight, position_side=5, deep_layers=(1, 3))
    return replace(
        cells,
        family="qwen3_vl",
        description="A random generator that reads cells at several layers, for tests.",
        model=randomised(Qwen3Vl(Qwen3VlConfig(**own | {"interleaved": True}))),
    )


def tiny_gemma3() -> Checkpoint:
    """Return the same with pictures of 24 x 24 in 3 x 3 places that see each other; one layer has a window."""
    tower = SiglipSizes(
        channels=3, image_height=24, image_width=24, patch_size=4, d_model=24, num_heads=2, d_ff=40, num_layers=2
    )
    plain = tiny_llava()
    own = {field.name: getattr(plain.model.config, field.name) for field in fields(DecoderOnlyConfig)}
    own |= {"windows": (6, ALL), "sight": MergedSightConfig(tower=tower, cell=2)}
    return _both_ways(plain, "gemma3", Gemma3(Gemma3Config(**own)), image_spec(3, 24, 24, 8))


def tiny_paligemma() -> Checkpoint:
    """Return the same with prompts that are read in both directions, and pictures of 16 x 16 in 4 x 4 places."""
    sight = PatchSightConfig(
        channels=3, image_height=16, image_width=16, patch_size=4, d_model=24, num_heads=2, d_ff=40, num_layers=2
    )
    plain = tiny_llava()
    own = {field.name: getattr(plain.model.config, field.name) for field in fields(DecoderOnlyConfig)}
    own |= {"windows": (6, ALL), "sight": sight}
    return _both_ways(plain, "paligemma", PaliGemma(PaliGemmaConfig(**own)), image_spec(3, 16, 16, 4))


def tiny_queries() -> Checkpoint:
    """Return one with places that have vectors. 5 queries read a picture of 16 x 16, in two of their three layers."""
    plain = tiny_llava()
    own = {field.name: getattr(plain.model.config, field.name) for field in fields(DecoderOnlyConfig)}
    own |= {
        "rotations": (),
        "embeddings": EmbeddingStyle(tied=False, positions=True),
        "style": Style(activation="relu"),
    }
    tower = VitSizes(
        channels=3, image_height=16, image_width=16, patch_size=4, d_model=24, num_heads=2, d_ff=40, num_layers=2
    )
    queries = QueriesConfig(num_queries=NUM_QUERIES, d_model=32, num_heads=2, d_ff=40, num_layers=3, reads_every=2)
    image = image_spec(3, 16, 16, 4)
    image.grid_rows = image.grid_columns = 0
    image.num_class_tokens = NUM_QUERIES
    return replace(
        plain,
        family="blip2",
        description="A random generator whose pictures are read by queries, for tests.",
        model=randomised(Blip2(Blip2Config(**own, sight=QuerySightConfig(tower=tower, queries=queries)))),
        image=image,
    )


def _both_ways(plain: Checkpoint, family: str, model: BidirectionalDecoder, image: bundle_pb2.ImageSpec) -> Checkpoint:
    text = bundle_pb2.TextSpec()
    text.CopyFrom(plain.text)
    text.bidirectional = model.bidirectional
    return replace(
        plain,
        family=family,
        description="A random generator that reads stretches of prompts in both directions, for tests.",
        model=randomised(model),
        text=text,
        image=image,
    )
