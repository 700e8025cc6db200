"""A tiny random generator with most of what a decoder-only model of others may have, as Gemma 3 and Granite do."""

import torch
from tiny_parts import byte_tokenizer, randomised

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.decoder_only import ALL, DecoderOnly, DecoderOnlyConfig
from weft_export.layers.embeddings import BANNED, EmbeddingStyle
from weft_export.layers.positions import Rope
from weft_export.layers.style import Style
from weft_proto.v1 import bundle_pb2

MAX_TOKENS, WINDOW = 64, 6


def tiny_decoder() -> Checkpoint:
    """Return a generator of bytes: sandwiches, normed heads, caps, multipliers, rotations, a window, untied words."""
    near = Rope(tuple(100.0 ** (-pair / 16) for pair in range(16)))
    far = Rope((*(1000.0 ** (-pair / 8) for pair in range(8)), *(0.0,) * 8), gain=1.25)
    config = DecoderOnlyConfig(
        vocab_size=300,
        max_tokens=MAX_TOKENS,
        d_model=48,
        num_heads=4,
        num_kv_heads=2,
        d_ff=80,
        num_layers=2,
        style=Style(
            residual="sandwich",
            rms_norm=True,
            activation="gelu_tanh",
            gated=True,
            bias=False,
            qkv_bias=True,
            scale=0.3,
            head_dim=32,
            softcap=4.0,
            qk_norm=True,
            residual_scale=0.7,
        ),
        embeddings=EmbeddingStyle(scale=7.0, tied=False, bias=True, softcap=9.0, logit_scale=1.5),
        rotations=(far, near),
        rotation_of=(1, 0),
        windows=(WINDOW, ALL),
    )
    model = randomised(DecoderOnly(config))
    with torch.no_grad():
        model.embeddings.bias[:1] = BANNED
    return Checkpoint(
        family="decoder_only",
        description="A random generator for tests.",
        model=model,
        golden=bundle_pb2.Golden(text="a small café"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            target_tokenizer="tokenizer.json",
            source_vocab_size=300,
            target_vocab_size=300,
            end_ids=[1],
            pad_id=0,
            max_total_tokens=MAX_TOKENS,
            max_new_tokens=MAX_TOKENS - 1,
        ),
        max_new_tokens=24,
        attention_layer=1,
        files={"tokenizer.json": byte_tokenizer()},
    )
