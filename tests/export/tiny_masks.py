"""A tiny random masked language model, whose words are narrower than its layers."""

from dataclasses import replace

from tiny_bert import MAX_TOKENS, VOCAB_SIZE, tiny_bert
from tiny_parts import UNKNOWN, randomised

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.masked_lm import MaskedLm, MaskedLmConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style
from weft_proto.v1 import bundle_pb2

MASK = "[UNKNOWN]"


def tiny_masks() -> Checkpoint:
    """Return a model that fills masks with words. Its tokenizer has no mask: the token for unknown words is one."""
    config = MaskedLmConfig(
        vocab_size=VOCAB_SIZE,
        max_tokens=MAX_TOKENS,
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_layers=2,
        d_embedding=24,
        style=Style(residual="post"),
        embeddings=EmbeddingStyle(positions=True, norm=True, bias=True),
    )
    tiny = tiny_bert()
    text = bundle_pb2.TextSpec()
    text.CopyFrom(tiny.text)
    text.mask_id = UNKNOWN
    return replace(
        tiny,
        family="masked_lm",
        description="A random masked language model for tests.",
        model=randomised(MaskedLm(config)),
        golden=bundle_pb2.Golden(text=f"the {MASK} eats and the dog finds {MASK}"),
        text=text,
        labels=(),
    )
