"""The translator of the peer benchmark: Transformer-base's shape (Vaswani et al. 2017, table 3), random weights."""

from shapes import GAIN, words
from tiny_parts import END, PAD, START, randomised, word_tokenizer

from weft_export.checkpoint import Checkpoint
from weft_export.families.encoder_decoder import BASE, EncoderDecoder, EncoderDecoderConfig
from weft_proto.v1 import bundle_pb2

VOCAB, MAX_TOKENS = 32_000, 64


def translation():
    """76 million weights; source and target embeddings are two, the output projection is the target's."""
    config = EncoderDecoderConfig(
        source_vocab_size=VOCAB,
        target_vocab_size=VOCAB,
        max_source_tokens=MAX_TOKENS,
        max_target_tokens=MAX_TOKENS,
        **BASE,
    )
    return Checkpoint(
        family="encoder_decoder",
        description="Random weights of Transformer-base's shape, for benchmarks.",
        model=randomised(EncoderDecoder(config), GAIN),
        golden=bundle_pb2.Golden(text="w238 w239"),  # its first token is a clear one
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
            "source.json": word_tokenizer(words(VOCAB), ends=True),
            "target.json": word_tokenizer(words(VOCAB), ends=False),
        },
    )
