"""Recipe `en-es`: translation of the English-Spanish grammar by a Transformer encoder-decoder."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.held_out import HeldOut, write_held_out
from weft_export.console import OnProgress
from weft_export.families.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from weft_proto.v1 import bundle_pb2
from weft_recipes.grammar.alignment import encode, guided_losses, measure_alignment
from weft_recipes.grammar.corpus import EXAMPLE, MAX_SOURCE, MAX_TARGET, count_clauses, sample
from weft_recipes.grammar.pairs import HELD_OUT_SHARE
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.greedy import greedy
from weft_recipes.shared.training import fit, pad, prepare
from weft_recipes.shared.vocabulary import END, PAD, START, word_tokenizer

SEED = 17
NUM_TRAINED, NUM_HELD_OUT = 200_000, 2_000
BATCH, NUM_STEPS, PEAK_LR = 128, 2_000, 3e-3
# The last layer's attention is guided by the grammar's word correspondences, lightly, which makes its picture legible
# ("Guided Alignment Training for Topic-Aware Neural Machine Translation", Chen et al. 2016).
ALIGNMENT_LAYER, GUIDANCE = 1, 0.1


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out combinations."""
    watch = Stopwatch()
    generator = prepare(SEED)
    pairs = sample(NUM_TRAINED, SEED, held_out=False)
    source = word_tokenizer(word for pair in pairs for word in pair.en)
    target = word_tokenizer(word for pair in pairs for word in pair.es)
    config = EncoderDecoderConfig(
        source_vocab_size=source.get_vocab_size(),
        target_vocab_size=target.get_vocab_size(),
        max_source_tokens=MAX_SOURCE,
        max_target_tokens=MAX_TARGET,
        d_model=128,
        num_heads=4,
        d_ff=256,
        num_encoder_layers=2,
        num_decoder_layers=2,
    )
    model = EncoderDecoder(config)
    rows = encode(source, target, pairs)
    loss_of = guided_losses(model, rows, generator, batch_size=BATCH, layer=ALIGNMENT_LAYER, guidance=GUIDANCE)
    fit(model, loss_of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, on_progress=on_progress)
    save_checkpoint(out, _checkpoint(model, source, target))
    figures = measure(out, NUM_HELD_OUT)
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    figures["clauses of the grammar, at least"] = count_clauses()
    figures["distinct sentences trained on"] = len({pair.source for pair in pairs})
    figures |= watch.figures()
    write_held_out(out, held_out())
    write_card(out, CARD, figures)
    return figures


def measure(directory: Path, count: int) -> Figures:
    """Measure a stored checkpoint on `count` sentences whose combinations it was never trained on."""
    checkpoint = load_checkpoint(directory)
    assert isinstance(checkpoint.model, EncoderDecoder)
    source, target = (Tokenizer.from_str(checkpoint.files[name].decode()) for name in ("source.json", "target.json"))
    pairs = sample(count, SEED + 2, held_out=True)
    answers = translate(checkpoint.model, source, target, [pair.source for pair in pairs])
    right = sum(answer == pair.target for answer, pair in zip(answers, pairs, strict=True))
    aligned = measure_alignment(checkpoint.model, source, target, pairs[:500], checkpoint.explained_layer)
    return {
        "exact match on held-out combinations": right / count,
        "held-out sentences": count,
        f"alignment agreement (layer {checkpoint.explained_layer})": aligned,
        f"“{EXAMPLE}”": translate(checkpoint.model, source, target, [EXAMPLE])[0],
    }


def held_out() -> HeldOut:
    """Return sentences whose combinations were never trained on, and their translations."""
    return [(pair.source, pair.target) for pair in sample(500, SEED + 2, held_out=True)]


@torch.no_grad()
def translate(model: EncoderDecoder, source: Tokenizer, target: Tokenizer, texts: Sequence[str]) -> list[str]:
    """Translate texts greedily."""
    answers: list[str] = []
    for first in range(0, len(texts), 250):
        rows = [encoding.ids for encoding in source.encode_batch(texts[first : first + 250])]
        lengths = torch.tensor([len(row) for row in rows])
        ids = greedy(model, pad(rows, PAD), lengths, start=START, end=END, max_new_tokens=MAX_TARGET - 1)
        answers += target.decode_batch(ids)
    return answers


def _checkpoint(model: EncoderDecoder, source: Tokenizer, target: Tokenizer) -> Checkpoint:
    config = model.config
    text = bundle_pb2.TextSpec(
        source_tokenizer="source.json",
        target_tokenizer="target.json",
        source_vocab_size=config.source_vocab_size,
        target_vocab_size=config.target_vocab_size,
        start_id=START,
        end_ids=[END],
        pad_id=PAD,
        max_source_tokens=MAX_SOURCE,
        max_total_tokens=MAX_TARGET,
        max_new_tokens=MAX_TARGET,
        source_languages=["en"],
        target_languages=["es"],
    )
    return Checkpoint(
        family="encoder_decoder",
        description="English to Spanish over a small procedural grammar",
        model=model,
        golden=bundle_pb2.Golden(text=EXAMPLE),
        text=text,
        max_new_tokens=MAX_TARGET,
        attention_layer=ALIGNMENT_LAYER,
        files={"source.json": source.to_str().encode(), "target.json": target.to_str().encode()},
    )


CARD = Card(
    name="en-es",
    title="English to Spanish",
    summary="Translates simple English sentences to Spanish: `we are eating bread` becomes `estamos comiendo pan`.",
    data=f"""Sentences drawn from a grammar written for this purpose (`weft_recipes/grammar/lexicon.py`, `phrases.py`,
`clauses.py`, `sentences.py`): about 100 nouns, 50 verbs with irregular forms written out, nine tenses and modals,
pronoun drop, gender and number agreement, adjectives after the noun, possessives and owners, negation, yes/no and
wh-questions, object pronouns before the verb, the personal *a*, *al* and *del*, *ser* and *estar*, *gustar*, *hay*.
No English sentence has two translations.

One combination of subject, verb and object (or place, or manner) in {HELD_OUT_SHARE} (by a hash) occurs in no
training sentence in any form; the held-out figures are measured on sentences of these combinations only. Counted
below are only the clauses of subject, verb, tense and object, stated or asked, affirmed or denied; adverbs, times,
places and the other constructions multiply that.""",
    model="""Transformer encoder-decoder, 2 + 2 layers, width 128, 4 heads, sinusoidal positions, pre-norm; float32.
Each word of the grammar is one token on either side, anything else is spelled in characters and bytes.""",
    notes="""- It knows its grammar and nothing else: unknown words, other tenses and longer sentences give wrong
  answers, not errors.
- *I*, *you* and *we* are taken as masculine where Spanish must choose, *you* as *tú*, *they* as *ellos*.
- The last layer's cross-attention was guided by the grammar's word correspondences (loss weight 0.1), so that
  alignments read well.
- Alignment agreement: the share of Spanish words for which the English token with the largest averaged
  cross-attention weight is one that the grammar says corresponds to it; a conjugated verb without a pronoun may
  point at the pronoun or the verb.""",
)
