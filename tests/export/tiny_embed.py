"""Tiny random models that embed: texts, by the mean of their places and a layer behind it, and pictures."""

from dataclasses import replace

from tiny_bert import MAX_TOKENS, VOCAB_SIZE, tiny_bert
from tiny_parts import image_spec, picture, randomised

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.clip_vision import ClipEmbedder, ClipEmbedderConfig
from weft_export.families.text_embedder import Dense, TextEmbedder, TextEmbedderConfig
from weft_export.layers.style import Style
from weft_export.layers.words import WordStyle
from weft_proto.v1 import bundle_pb2


def embedder_config(**more) -> TextEmbedderConfig:
    """Return sizes of a body of BERT's kind."""
    sizes = {"vocab_size": VOCAB_SIZE, "max_tokens": MAX_TOKENS, "d_model": 32, "num_heads": 2, "d_ff": 48}
    words = WordStyle(positions=True, norm=True)
    return TextEmbedderConfig(**sizes, num_layers=2, style=Style(residual="post"), words=words, **more)


def tiny_embed() -> Checkpoint:
    """Return an embedder of words into 24 dimensions."""
    config = embedder_config(pooling="mean", dense=(Dense(24, "tanh"),))
    return replace(
        tiny_bert(),
        family="text_embedder",
        description="A random embedder for tests.",
        model=randomised(TextEmbedder(config)),
        labels=(),
    )


def tiny_embed_image() -> Checkpoint:
    """Return CLIP's image encoder for 8 x 12 colour pictures of 2 x 3 patches, into 24 dimensions."""
    sizes = {"channels": 3, "image_height": 8, "image_width": 12, "patch_size": 4}
    config = ClipEmbedderConfig(**sizes, d_model=32, num_heads=2, d_ff=48, num_layers=2, d_embedding=24)
    return Checkpoint(
        family="clip_embedder",
        description="A random embedder of pictures for tests.",
        model=randomised(ClipEmbedder(config)),
        golden=bundle_pb2.Golden(image_path="golden.png"),
        image=image_spec(3, 8, 12, 4),
        files={"golden.png": picture(20, 18)},
    )


EMBED = {"tiny-embed": tiny_embed, "tiny-embed-image": tiny_embed_image}
