"""Tiny random encoders: one that classifies words, one that tags them."""

from tiny_parts import END, PAD, SOURCE_WORDS, START, randomised, word_tokenizer
from tokenizers import Tokenizer, processors

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.bert import Bert, BertConfig, BertTagger
from weft_proto.v1 import bundle_pb2

VOCAB_SIZE, MAX_TOKENS = len(SOURCE_WORDS) + 4, 77
TOPICS = ("animals", "colours", "houses")
TAGS = ("O", "B-ANIMAL", "I-ANIMAL", "B-PLACE", "I-PLACE")


def tiny_bert() -> Checkpoint:
    """Return a classifier of words into three topics."""
    return _checkpoint("bert", randomised(Bert(_config(len(TOPICS)))), TOPICS)


def tiny_tags() -> Checkpoint:
    """Return a tagger of words, with spans of two kinds."""
    return _checkpoint("bert_tagger", randomised(BertTagger(_config(len(TAGS)))), TAGS)


def _config(num_labels: int) -> BertConfig:
    # 77 tokens at most: padded to 78, beyond the last position, and longer than 64, where padding is finer.
    return BertConfig(
        vocab_size=VOCAB_SIZE,
        num_labels=num_labels,
        max_tokens=MAX_TOKENS,
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_layers=3,
    )


def _checkpoint(family: str, model: Bert | BertTagger, labels: tuple[str, ...]) -> Checkpoint:
    return Checkpoint(
        family=family,
        description="A random encoder for tests.",
        model=model,
        golden=bundle_pb2.Golden(text="the cat eats and the dog finds"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            source_vocab_size=VOCAB_SIZE,
            pad_id=PAD,
            max_source_tokens=MAX_TOKENS,
        ),
        labels=labels,
        files={"tokenizer.json": _enclosing_tokenizer()},
    )


def _enclosing_tokenizer() -> bytes:
    """Return a word tokenizer whose encodings begin with [START], which serves as [CLS], and close with [END]."""
    tokenizer = Tokenizer.from_buffer(word_tokenizer(SOURCE_WORDS, ends=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[START] $A [END]", special_tokens=[("[START]", START), ("[END]", END)]
    )
    return tokenizer.to_str().encode()
