"""Recipe `en-es-rnn`: translation of the English-Spanish grammar by an LSTM encoder-decoder with a fixed context."""

from pathlib import Path

from weft_export.console import OnProgress
from weft_export.families.rnn import Rnn, RnnConfig
from weft_recipes.grammar.corpus import MAX_SOURCE, MAX_TARGET
from weft_recipes.grammar.pairs import HELD_OUT_SHARE
from weft_recipes.grammar.recurrent_translation import train_translator
from weft_recipes.shared.card import Card
from weft_recipes.shared.figures import Figures

SEED, NUM_STEPS = 37, 4_000


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out combinations."""
    return train_translator(
        out,
        on_progress,
        CARD,
        make,
        family="rnn",
        description="English to Spanish through one fixed state (LSTM)",
        seed=SEED,
        num_steps=NUM_STEPS,
    )


def make(source_vocab_size: int, target_vocab_size: int) -> Rnn:
    """Return the model, untrained."""
    return Rnn(
        RnnConfig(
            source_vocab_size=source_vocab_size,
            target_vocab_size=target_vocab_size,
            max_source_tokens=MAX_SOURCE,
            max_target_tokens=MAX_TARGET,
            cell="lstm",
            d_embedding=96,
            d_hidden=208,
            num_layers=1,
        )
    )


CARD = Card(
    name="en-es-rnn",
    title="English to Spanish through a fixed context",
    summary="Translates simple English sentences to Spanish; the whole sentence passes through one LSTM state.",
    data=f"""Sentences of the grammar of the model `en-es`, from another seed. One combination of subject, verb and
object (or place, or manner) in {HELD_OUT_SHARE} (by a hash) occurs in no training sentence in any form; the held-out
figures are measured on sentences of these combinations only.""",
    model="""LSTM encoder-decoder (Sutskever et al. 2014): one layer of width 208 on either side, the source read
backwards, no attention. Trained in float32, stored in float16. Each word of the grammar is one token on either side,
anything else is spelled in characters and bytes.""",
    notes="""- It knows its grammar and nothing else: unknown words, other tenses and longer sentences give wrong
  answers, not errors.
- Long sentences suffer first: all of them must fit into 2 x 208 numbers.""",
)
