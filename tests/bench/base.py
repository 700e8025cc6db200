"""A translator of Transformer-base size (Vaswani et al. 2017), random weights: what a step of a real model costs."""

import torch
from tiny_parts import END, PAD, START, word_tokenizer

from weft_export.checkpoint import Checkpoint, save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.families.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from weft_proto.v1 import bundle_pb2

VOCAB, MAX_TOKENS = 32_000, 64


def base_bundle(repository):
    """The bundle <repository>/transformer-base/1, exported once; it takes about a minute."""
    bundle = repository / "transformer-base" / "1"
    if not bundle.is_dir():
        checkpoint = repository.parent / "base-checkpoint"
        save_checkpoint(checkpoint, _checkpoint())
        export_checkpoint(checkpoint, bundle)
    return bundle


def _checkpoint():
    torch.manual_seed(0)
    config = EncoderDecoderConfig(
        source_vocab_size=VOCAB,
        target_vocab_size=VOCAB,
        max_source_tokens=MAX_TOKENS,
        max_target_tokens=MAX_TOKENS,
        d_model=512,
        num_heads=8,
        d_ff=2048,
        num_encoder_layers=6,
        num_decoder_layers=6,
    )
    words = [f"w{index}" for index in range(VOCAB - 4)]
    return Checkpoint(
        family="encoder_decoder",
        description="Random weights of Transformer-base size, for benchmarks.",
        model=EncoderDecoder(config).eval(),
        golden=bundle_pb2.Golden(text="w1 w2 w3"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="source.json",
            target_tokenizer="target.json",
            source_vocab_size=VOCAB,
            target_vocab_size=VOCAB,
            start_id=START,
            end_ids=[END],
            pad_id=PAD,
            max_source_tokens=MAX_TOKENS,
            max_total_tokens=MAX_TOKENS,
            max_new_tokens=MAX_TOKENS,
            source_languages=["en"],
            target_languages=["es"],
        ),
        max_new_tokens=MAX_TOKENS,
        attention_layer=5,
        files={
            "source.json": word_tokenizer(words, ends=True),
            "target.json": word_tokenizer(words, ends=False),
        },
    )
