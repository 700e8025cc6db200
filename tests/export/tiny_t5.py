"""Tiny random models of one vocabulary for both sides: T5, and the Transformer as its paper has it."""

from tiny_parts import END, PAD, SOURCE_WORDS, START, TARGET_WORDS, randomised, word_tokenizer

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from weft_export.families.t5 import T5, T5Config
from weft_proto.v1 import bundle_pb2

MAX_SOURCE, MAX_TARGET = 21, 24
PREFIXES = ("translate : ", "shorten : ")
WORDS = [*dict.fromkeys([*SOURCE_WORDS, *TARGET_WORDS, "translate", "shorten", ":"])]
VOCAB_SIZE = len(WORDS) + 4


def tiny_t5() -> Checkpoint:
    """Return a text-to-text model whose heads do not make d_model, with buckets that some offsets share."""
    config = T5Config(
        vocab_size=VOCAB_SIZE,
        max_source_tokens=MAX_SOURCE,
        max_target_tokens=MAX_TARGET,
        d_model=32,
        num_heads=3,
        head_dim=8,
        d_ff=48,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_buckets=8,
        max_distance=16,
    )
    return _checkpoint("t5", randomised(T5(config), 1.2), PREFIXES)


def tiny_post_norm() -> Checkpoint:
    """Return a translator with post-norm, ReLU and one embedding for everything."""
    config = EncoderDecoderConfig(
        source_vocab_size=VOCAB_SIZE,
        target_vocab_size=VOCAB_SIZE,
        max_source_tokens=MAX_SOURCE,
        max_target_tokens=MAX_TARGET,
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_encoder_layers=2,
        num_decoder_layers=2,
        norm="post",
        activation="relu",
        shared_embedding=True,
    )
    return _checkpoint("encoder_decoder", randomised(EncoderDecoder(config)))


def _checkpoint(family: str, model: T5 | EncoderDecoder, prefixes: tuple[str, ...] = ()) -> Checkpoint:
    return Checkpoint(
        family=family,
        description="A random model for tests.",
        model=model,
        golden=bundle_pb2.Golden(text="".join(prefixes[:1]) + "the big dog eats"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            target_tokenizer="tokenizer.json",
            source_vocab_size=VOCAB_SIZE,
            target_vocab_size=VOCAB_SIZE,
            start_id=START,
            end_ids=[END],
            pad_id=PAD,
            max_source_tokens=MAX_SOURCE,
            max_total_tokens=MAX_TARGET,
            max_new_tokens=MAX_TARGET,
            prefixes=prefixes,
        ),
        max_new_tokens=16,
        attention_layer=1,
        files={"tokenizer.json": word_tokenizer(WORDS, ends=True)},
    )
