"""Recipe `en-es`: translation of the English-Spanish grammar by a Transformer encoder-decoder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from weft_export.checkpoints.held_out import HeldOut, write_held_out
from weft_export.console.progress import OnProgress
from weft_export.families.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from weft_export.families.sequence_to_sequence import SequenceToSequence
from weft_export.families.writer import Writer
from weft_proto.v1 import bundle_pb2
from weft_recipes.grammar.corpus import count_clauses, sample
from weft_recipes.grammar.pairs import HELD_OUT_SHARE, Pair
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.greedy import greedy
from weft_recipes.shared.training import fit, pad, prepare, shuffled
from weft_recipes.shared.vocabulary import END, PAD, START, word_tokenizer

SEED = 17
NUM_TRAINED, NUM_HELD_OUT = 200_000, 2_000
BATCH, NUM_STEPS, PEAK_LR = 128, 2_000, 3e-3
MAX_SOURCE, MAX_TARGET = 64, 64
# The last layer's attention is guided by the grammar's word correspondences, lightly, which makes its picture legible
# ("Guided Alignment Training for Topic-Aware Neural Machine Translation", Chen et al. 2016).
ALIGNMENT_LAYER, GUIDANCE = 1, 0.1
EXAMPLE = "we are eating bread"


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
    assert checkpoint.attention_layer is not None
    source, target = (Tokenizer.from_str(checkpoint.files[name].decode()) for name in ("source.json", "target.json"))
    pairs = sample(count, SEED + 2, held_out=True)
    answers = translate(checkpoint.model, source, target, [pair.source for pair in pairs])
    right = sum(answer == pair.target for answer, pair in zip(answers, pairs, strict=True))
    aligned = measure_alignment(checkpoint.model, source, target, pairs[:500], checkpoint.attention_layer)
    return {
        "exact match on held-out combinations": right / count,
        "held-out sentences": count,
        f"alignment agreement (layer {checkpoint.attention_layer})": aligned,
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


@torch.no_grad()
def measure_alignment(model: Writer, source: Tokenizer, target: Tokenizer, pairs: Sequence[Pair], layer: int) -> float:
    """Return the share of Spanish words whose most attended token is one that the grammar aligns with them."""
    hits = total = 0
    for pair in pairs:
        ids = torch.tensor([source.encode(pair.source).ids])
        written = torch.tensor([[START, *target.encode(pair.target).ids[:-1]]])
        lengths = torch.tensor([ids.shape[1]], dtype=torch.int32)
        weights, _ = model.explain(torch.tensor([layer]), torch.tensor([-1]), written, ids, lengths)
        for word, english in enumerate(pair.alignment):
            hits += int(weights[word].argmax()) in english
            total += bool(english)
    return hits / total


@dataclass(frozen=True, slots=True)
class Row:
    """A pair as token ids, and which source positions each target token stands for."""

    source: list[int]
    target: list[int]
    alignment: list[tuple[int, ...]]


def encode(source: Tokenizer, target: Tokenizer, pairs: list[Pair]) -> list[Row]:
    """Return pairs as rows of token ids; every target begins with START."""
    sources = source.encode_batch([pair.source for pair in pairs])
    targets = target.encode_batch([pair.target for pair in pairs])
    rows = []
    for s, t, pair in zip(sources, targets, pairs, strict=True):
        # Every word is one token; the end of the target stands for the end of the source.
        alignment = [*pair.alignment, (len(s.ids) - 1,)]
        rows.append(Row(s.ids, [START, *t.ids], alignment))
    return rows


def guided_losses(
    model: SequenceToSequence,
    rows: list[Row],
    generator: torch.Generator,
    *,
    batch_size: int,
    layer: int,
    guidance: float,
) -> Callable[[int], Tensor]:
    """Return a step's loss: cross-entropy, and guidance times the misalignment of one layer's mean over its heads."""
    # Rows of like length share a batch, so that little of it is padding.
    rows = sorted(rows, key=lambda row: (len(row.source), len(row.target)))
    order = shuffled(len(rows) // batch_size, 1, generator)

    def loss_of(_step: int) -> Tensor:
        first = int(next(order)) * batch_size
        batch = rows[first : first + batch_size]
        source = pad([row.source for row in batch], PAD)
        target = pad([row.target for row in batch], PAD)
        encoded, mask = model.encode(source, torch.tensor([len(row.source) for row in batch]))
        memories = model.decoder.project(encoded)
        logits = model.decoder(target[:, :-1], memories, mask)
        loss = functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        weights = model.decoder.attentions(target[:, :-1], memories, mask)[layer].mean(dim=1)
        return loss + guidance * misalignment(weights, batch)

    return loss_of


def misalignment(weights: Tensor, batch: list[Row]) -> Tensor:
    """Return the mean over target tokens of -log(attention paid to the source tokens that they stand for)."""
    wanted = torch.zeros_like(weights)
    for index, row in enumerate(batch):
        for position, sources in enumerate(row.alignment):
            wanted[index, position, list(sources)] = 1
    paid = (weights * wanted).sum(dim=-1)
    aligned = wanted.any(dim=-1)
    return -(paid[aligned] + 1e-6).log().mean()


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
