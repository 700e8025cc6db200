"""Tiny random models that embed: texts, by the mean of their places and a layer behind it, pictures, and both."""

from dataclasses import replace

from tiny_bert import MAX_TOKENS, VOCAB_SIZE, tiny_bert
from tiny_parts import image_spec, picture, randomised

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.clip import Clip, ClipConfig
from weft_export.families.clip_vision import ClipEmbedder, ClipEmbedderConfig
from weft_export.families.decoder_embedder import DecoderEmbedder, DecoderEmbedderConfig
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.families.text_embedder import Dense, TextEmbedder, TextEmbedderConfig, TokenWeights
from weft_export.families.vit import VitEmbedder, VitEmbedderConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.positions import Rope
from weft_export.layers.style import Style
from weft_proto.v1 import bundle_pb2

SIZES = {"vocab_size": VOCAB_SIZE, "max_tokens": MAX_TOKENS, "d_model": 32, "num_heads": 2, "d_ff": 48}


def embedder_config(**more) -> TextEmbedderConfig:
    """Return sizes of a body of BERT's kind."""
    words = EmbeddingStyle(positions=True, norm=True)
    return TextEmbedderConfig(**SIZES, num_layers=2, style=Style(residual="post"), embeddings=words, **more)


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


def tiny_colbert() -> Checkpoint:
    """Return an embedder of each word into 8 dimensions, whose queries are filled up to 12 tokens."""
    config = embedder_config(pooling="none", dense=(Dense(8, bias=False),))
    tiny = tiny_embed()
    (text := bundle_pb2.TextSpec()).CopyFrom(tiny.text)
    text.default_prompt_name = "document"
    text.prompts.add(name="query", text="where ")
    text.prompts.add(name="document")
    text.sides.add(prompt_name="query", max_tokens=12, fill_to=12, fill_id=5)
    text.sides.add(prompt_name="document", max_tokens=MAX_TOKENS, skipped_ids=[6, 8])
    model = randomised(TextEmbedder(config))
    return replace(tiny, description="A random ColBERT for tests.", model=model, text=text)


def tiny_m3() -> Checkpoint:
    """Return an embedder that gives each word a vector and a weight too, but for some."""
    config = embedder_config(pooling="first", averages=True, weighs=TokenWeights((0, 1, 2, 3)))
    return replace(tiny_embed(), description="A random BGE-M3 for tests.", model=randomised(TextEmbedder(config)))


def tiny_embed_decoder() -> Checkpoint:
    """Return an embedder of a decoder's body with shared keys, turned heads, normed queries and a window."""
    body = DecoderOnlyConfig(
        vocab_size=VOCAB_SIZE,
        max_tokens=MAX_TOKENS,
        d_model=32,
        num_heads=2,
        num_kv_heads=1,
        d_ff=48,
        num_layers=2,
        style=Style(rms_norm=True, bias=False, activation="silu", gated=True, qk_norm=True),
        rotations=(Rope(tuple(10000.0 ** (-pair / 8) for pair in range(8))),),
        windows=(0, 9),
    )
    model = DecoderEmbedder(DecoderEmbedderConfig(body=body))
    return replace(tiny_embed(), family="decoder_embedder", model=randomised(model))


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


def tiny_embed_vit() -> Checkpoint:
    """Return an embedder of the same pictures, by the mean of their patches."""
    sizes = {"channels": 3, "image_height": 8, "image_width": 12, "patch_size": 4}
    config = VitEmbedderConfig(**sizes, d_model=32, num_heads=2, d_ff=48, num_layers=2, pooling="mean")
    return replace(tiny_embed_image(), family="vit_embedder", model=randomised(VitEmbedder(config)))


def tiny_match() -> Checkpoint:
    """Return a CLIP: the towers are those of both above, but that a text is causal and read at its end."""
    texts = TextEmbedderConfig(
        **{**SIZES, "max_tokens": 20},
        num_layers=2,
        embeddings=EmbeddingStyle(positions=True),
        causal=True,
        pooling="last",
        dense=(Dense(24, bias=False),),
    )
    pictures = tiny_embed_image()
    (text := bundle_pb2.TextSpec()).CopyFrom(tiny_bert().text)
    text.max_source_tokens = 20
    model = Clip(ClipConfig(pictures=pictures.model.config, texts=texts))
    golden = bundle_pb2.Golden(image_path="golden.png", labels=["cat", "dog", "green tree"])
    return replace(
        pictures,
        family="clip",
        description="A random match of pictures and words for tests.",
        model=randomised(model),
        golden=golden,
        text=text,
        label_text="the {} and",
        files={**pictures.files, **tiny_bert().files},
    )


EMBED = {
    "tiny-embed": tiny_embed,
    "tiny-colbert": tiny_colbert,
    "tiny-m3": tiny_m3,
    "tiny-embed-decoder": tiny_embed_decoder,
    "tiny-embed-image": tiny_embed_image,
    "tiny-embed-vit": tiny_embed_vit,
    "tiny-match": tiny_match,
}
