"""The translator of the peer benchmark: Transformer-base's shape (Vaswani et al. 2017, table 3), random weights."""

from shapes import LIVELY, words
from tiny_parts import END, PAD, START, randomised, word_tokenizer

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.encoder_decoder import BASE, EncoderDecoder, EncoderDecoderConfig
from weft_proto.v1 import bundle_pb2

VOCAB, MAX_TOKENS = 32_000, 64
# Random layers add the same to each position, and the tied projection prefers the word just read: with these shares the
# decoder's feed-forward blocks, which read that word, say more than both, and answers are not one word for ever.
_ATTENTION_SHARE, _FEED_FORWARD_SHARE = 0.2, 3.0


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
        model=_lively(EncoderDecoder(config)),
        golden=bundle_pb2.Golden(text="w9 w10"),  # its first token is a clear one
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


def _lively(model):
    randomised(model, LIVELY)
    for name, parameter in model.decoder.named_parameters():
        if name.endswith("attention.output.weight"):
            parameter.data.mul_(_ATTENTION_SHARE)
        elif name.endswith("feed_forward.down_proj.weight"):
            parameter.data.mul_(_FEED_FORWARD_SHARE)
    return model
