"""Quality against sentence length, with a fixed context and with attention: Figure 2 of Bahdanau et al. 2015 in small.

Not a demo checkpoint but an experiment: `make bench-lengths` runs it and writes down what it found.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from tokenizers import Tokenizer

from weft_export.families.attention_rnn import AttentionRnn, AttentionRnnConfig
from weft_export.families.rnn import Rnn, RnnConfig
from weft_recipes.grammar.alignment import Row
from weft_recipes.grammar.compounds import JOINS, Compound, draw_compounds, statements
from weft_recipes.grammar.corpus import sample
from weft_recipes.grammar.pairs import Pair
from weft_recipes.grammar.recurrent_translation import Translator, losses, translate
from weft_recipes.shared.figures import bleu
from weft_recipes.shared.training import fit, prepare
from weft_recipes.shared.vocabulary import START, word_tokenizer

SEED = 43
NUM_CLAUSES, NUM_TRAINED, NUM_HELD_OUT_CLAUSES = 60_000, 60_000, 3_000
TRAINED_UP_TO = (30, 15)
"""Words of the longest sentences trained on, for one run each; the paper's are 30 and 50."""
FIXED, ATTENTION = "fixed context", "attention"
NUM_STEPS = {(FIXED, 15): 4_000, (ATTENTION, 15): 1_500, (FIXED, 30): 3_000, (ATTENTION, 30): 1_100}
"""Under three minutes each; the fixed context learns more slowly and has cheaper steps."""
BINS, IN_BIN = tuple(range(5, 51, 5)), 200
"""Sentences are measured by length, in bins of five words that end here."""
PEAK_LR = 3e-3
D_EMBEDDING, D_HIDDEN, D_ATTENTION, MAX_TOKENS = 96, 160, 96, 96


@dataclass
class Curve:
    """A model's quality by bin."""

    name: str
    trained_up_to: int
    parameters: int
    num_steps: int
    cpu_seconds: int
    bleu: list[float] = field(default_factory=list)
    exact: list[float] = field(default_factory=list)


def run(on_note: Callable[[str], None]) -> Iterator[list[Curve]]:
    """Train both models on each range of lengths and measure them on sentences up to the last bin.

    Yields all curves that there are after each range.
    """
    clauses = statements(sample(NUM_CLAUSES, SEED, held_out=False))
    bins = _bins(statements(sample(NUM_HELD_OUT_CLAUSES, SEED + 1, held_out=True)))
    source, target = _tokenizers(clauses)
    curves: list[Curve] = []
    for longest in TRAINED_UP_TO:
        rows = _encode(source, target, draw_compounds(clauses, NUM_TRAINED, longest, SEED + 2))
        for name in (FIXED, ATTENTION):
            curve = _train_and_measure(name, longest, rows, bins, source, target, on_note)
            curves.append(curve)
            on_note(f"{name}, up to {longest}: BLEU {curve.bleu}, exact {curve.exact}")
        yield sorted(curves, key=lambda curve: curve.trained_up_to)


def _train_and_measure(
    name: str,
    longest: int,
    rows: list[Row],
    bins: list[list[Compound]],
    source: Tokenizer,
    target: Tokenizer,
    on_note: Callable[[str], None],
) -> Curve:
    generator = prepare(SEED)
    torch.set_num_threads(1)
    model = _model(name, source.get_vocab_size(), target.get_vocab_size())
    num_steps = NUM_STEPS[name, longest]
    began = time.process_time()

    def on_progress(done: int, total: int, note: str) -> None:
        if done % 100 == 0:
            on_note(f"{name}, up to {longest} words: {done} of {total}, {note}")

    fit(model, losses(model, rows, generator), num_steps=num_steps, peak_lr=PEAK_LR, on_progress=on_progress)
    curve = Curve(
        name, longest, sum(p.numel() for p in model.parameters()), num_steps, round(time.process_time() - began)
    )
    for compounds in bins:
        wanted = [compound.target for compound in compounds]
        answers = translate(
            model, source, target, [compound.source for compound in compounds], max_new_tokens=MAX_TOKENS
        )
        curve.bleu.append(round(bleu(answers, wanted), 3))
        right = sum(answer == target_ for answer, target_ in zip(answers, wanted, strict=True))
        curve.exact.append(round(right / len(wanted), 3))
    return curve


def _model(name: str, source_vocab_size: int, target_vocab_size: int) -> Translator:
    if name == FIXED:
        return Rnn(
            RnnConfig(
                source_vocab_size=source_vocab_size,
                target_vocab_size=target_vocab_size,
                max_source_tokens=MAX_TOKENS,
                max_target_tokens=MAX_TOKENS,
                cell="gru",
                d_embedding=D_EMBEDDING,
                d_hidden=D_HIDDEN,
                num_layers=1,
            )
        )
    return AttentionRnn(
        AttentionRnnConfig(
            source_vocab_size=source_vocab_size,
            target_vocab_size=target_vocab_size,
            max_source_tokens=MAX_TOKENS,
            max_target_tokens=MAX_TOKENS,
            d_embedding=D_EMBEDDING,
            d_hidden=D_HIDDEN,
            d_attention=D_ATTENTION,
            d_maxout=D_HIDDEN,
        )
    )


def _bins(clauses: list[Pair]) -> list[list[Compound]]:
    """Return IN_BIN held-out sentences for each bin."""
    bins: list[list[Compound]] = [[] for _ in BINS]
    for compound in draw_compounds(clauses, 20 * IN_BIN * len(BINS), BINS[-1], SEED + 3):
        index = (compound.num_words - 1) // 5
        if len(bins[index]) < IN_BIN:
            bins[index].append(compound)
    assert all(len(compounds) == IN_BIN for compounds in bins), "a bin has too few sentences. This is a bug."
    return bins


def _tokenizers(clauses: list[Pair]) -> tuple[Tokenizer, Tokenizer]:
    joins_en, joins_es = zip(*JOINS, strict=True)
    return (
        word_tokenizer([*joins_en, *(word for pair in clauses for word in pair.en)]),
        word_tokenizer([*joins_es, *(word for pair in clauses for word in pair.es)]),
    )


def _encode(source: Tokenizer, target: Tokenizer, compounds: list[Compound]) -> list[Row]:
    sources = source.encode_batch([compound.source for compound in compounds])
    targets = target.encode_batch([compound.target for compound in compounds])
    return [Row(s.ids, [START, *t.ids], []) for s, t in zip(sources, targets, strict=True)]
