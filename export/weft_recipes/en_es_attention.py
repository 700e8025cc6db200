"""Recipe `en-es-attention`: translation of the English-Spanish grammar by a GRU encoder-decoder with attention."""

from pathlib import Path

from weft_export.console import OnProgress
from weft_export.families.attention_rnn import AttentionRnn, AttentionRnnConfig
from weft_recipes.grammar.corpus import MAX_SOURCE, MAX_TARGET
from weft_recipes.grammar.pairs import HELD_OUT_SHARE
from weft_recipes.grammar.recurrent_translation import train_translator
from weft_recipes.shared.card import Card
from weft_recipes.shared.figures import Figures

SEED, NUM_STEPS = 41, 2_800
GUIDANCE = 0.1
"""How much the grammar's word correspondences guide the alignment, as in `en-es` (Chen et al. 2016)."""


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out combinations."""
    return train_translator(
        out,
        on_progress,
        CARD,
        make,
        family="attention_rnn",
        description="English to Spanish by an RNN that aligns as it translates",
        seed=SEED,
        num_steps=NUM_STEPS,
        guidance=GUIDANCE,
    )


def make(source_vocab_size: int, target_vocab_size: int) -> AttentionRnn:
    """Return the model, untrained."""
    return AttentionRnn(
        AttentionRnnConfig(
            source_vocab_size=source_vocab_size,
            target_vocab_size=target_vocab_size,
            max_source_tokens=MAX_SOURCE,
            max_target_tokens=MAX_TARGET,
            d_embedding=96,
            d_hidden=128,
            d_attention=96,
            d_maxout=128,
        )
    )


CARD = Card(
    name="en-es-attention",
    title="English to Spanish by an RNN that aligns",
    summary="Translates simple English sentences to Spanish, and looks at the word that it is translating.",
    data=f"""Sentences of the grammar of the model `en-es`, from another seed. One combination of subject, verb and
object (or place, or manner) in {HELD_OUT_SHARE} (by a hash) occurs in no training sentence in any form; the held-out
figures are measured on sentences of these combinations only.""",
    model="""The RNN with attention of Bahdanau et al. 2015: a bidirectional GRU reads, a GRU of width 128 writes,
additive attention of width 96, maxout output. Trained in float32, stored in float16. Each word of the grammar is one
token on either side, anything else is spelled in characters and bytes.""",
    notes=f"""- It knows its grammar and nothing else: unknown words, other tenses and longer sentences give wrong
  answers, not errors.
- The alignment was guided by the grammar's word correspondences (loss weight {GUIDANCE}), which the paper did not do.
- Alignment agreement: the share of Spanish words for which the English token with the largest weight is one that the
  grammar says corresponds to it.""",
)
