"""A tiny random extractor of answers, whose tokenizer joins a question and a context."""

from dataclasses import replace

from tiny_bert import MAX_TOKENS, VOCAB_SIZE, tiny_bert
from tiny_parts import END, SOURCE_WORDS, START, randomised, word_tokenizer
from tokenizers import Tokenizer, processors

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.classifier import IDENTITY
from weft_export.families.encoder_only import EncoderOnlyConfig, EncoderOnlyTagger
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style
from weft_proto.bundle_rules import EXTRACT_LABELS
from weft_proto.v1 import bundle_pb2


def tiny_extract() -> Checkpoint:
    """Return a model that knows the second of two texts by the token between them."""
    config = EncoderOnlyConfig(
        vocab_size=VOCAB_SIZE,
        max_tokens=MAX_TOKENS,
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_layers=1,
        style=Style(residual="post"),
        embeddings=EmbeddingStyle(positions=True, norm=True, separator_id=END),
        num_labels=len(EXTRACT_LABELS),
        head_activation=None,
        scoring=IDENTITY,
    )
    tiny = tiny_bert()
    text = bundle_pb2.TextSpec()
    text.CopyFrom(tiny.text)
    text.separator_id = END
    return replace(
        tiny,
        family="encoder_only_extractor",
        description="A random extractor of answers for tests.",
        model=randomised(EncoderOnlyTagger(config)),
        text=text,
        labels=EXTRACT_LABELS,
        files={"tokenizer.json": _joining_tokenizer()},
    )


def _joining_tokenizer() -> bytes:
    """Return a word tokenizer that puts [END] between two texts, and encloses both as it does one."""
    tokenizer = Tokenizer.from_buffer(word_tokenizer(SOURCE_WORDS, ends=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[START] $A [END]",
        pair="[START] $A [END] $B:1 [END]:1",
        special_tokens=[("[START]", START), ("[END]", END)],
    )
    return tokenizer.to_str().encode()
