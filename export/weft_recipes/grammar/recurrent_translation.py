"""What the recurrent translators of English to Spanish share: batches, loss, answers, figures, and the checkpoint."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.console import OnProgress
from weft_export.families.attention_rnn import AttentionRnn
from weft_export.families.rnn import Rnn
from weft_proto.v1 import bundle_pb2
from weft_recipes.grammar.alignment import Row, encode, measure_alignment, misalignment
from weft_recipes.grammar.corpus import EXAMPLE, MAX_TARGET, sample
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.greedy import answer_by_steps
from weft_recipes.shared.training import fit, pad, prepare, shuffled
from weft_recipes.shared.vocabulary import END, PAD, START, word_tokenizer

NUM_TRAINED, NUM_HELD_OUT = 150_000, 2_000
BATCH, PEAK_LR = 64, 3e-3
Translator = Rnn | AttentionRnn


def losses(
    model: Translator, rows: list[Row], generator: torch.Generator, *, guidance: float = 0.0
) -> Callable[[int], Tensor]:
    """Return the loss of each step's batch: cross-entropy, and guidance times what the alignment misses."""
    # Rows of like length share a batch, so that little of it is padding.
    rows = sorted(rows, key=lambda row: (len(row.source), len(row.target)))
    order = shuffled(len(rows) // BATCH, 1, generator)

    def loss_of(_step: int) -> Tensor:
        first = int(next(order)) * BATCH
        chosen = rows[first : first + BATCH]
        source, lengths = _source([row.source for row in chosen])
        target = pad([row.target for row in chosen], PAD)
        if guidance:
            assert isinstance(model, AttentionRnn), "only attention can be guided. This is a bug."
            logits, alignment = model.decode_and_align(target[:, :-1], source, lengths)
        else:
            logits = model.decode(target[:, :-1], source, lengths)
        loss = functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        return loss + guidance * misalignment(alignment, chosen) if guidance else loss

    return loss_of


def train_translator(
    out: Path,
    on_progress: OnProgress,
    card: Card,
    make: Callable[[int, int], Translator],
    *,
    family: str,
    description: str,
    seed: int,
    num_steps: int,
    guidance: float = 0.0,
) -> Figures:
    """Train on the grammar's sentences, write checkpoint and card into `out`, and return the figures.

    `make` takes the sizes of both vocabularies.
    """
    watch = Stopwatch()
    generator = prepare(seed)
    torch.set_num_threads(1)
    pairs = sample(NUM_TRAINED, seed, held_out=False)
    source = word_tokenizer(word for pair in pairs for word in pair.en)
    target = word_tokenizer(word for pair in pairs for word in pair.es)
    model = make(source.get_vocab_size(), target.get_vocab_size())
    loss_of = losses(model, encode(source, target, pairs), generator, guidance=guidance)
    fit(model, loss_of, num_steps=num_steps, peak_lr=PEAK_LR, on_progress=on_progress)
    save_checkpoint(out, _checkpoint(family, description, model, source, target), torch.float16)
    figures = measure(out, NUM_HELD_OUT, seed + 2)
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    figures["distinct sentences trained on"] = len({pair.source for pair in pairs})
    figures |= watch.figures()
    write_card(out, card, figures)
    return figures


def measure(directory: Path, count: int, seed: int) -> Figures:
    """Measure a stored checkpoint on `count` sentences whose combinations it was never trained on."""
    checkpoint = load_checkpoint(directory)
    model: Any = checkpoint.model
    source, target = (Tokenizer.from_str(checkpoint.files[name].decode()) for name in ("source.json", "target.json"))
    pairs = sample(count, seed, held_out=True)
    answers = translate(model, source, target, [pair.source for pair in pairs])
    right = sum(answer == pair.target for answer, pair in zip(answers, pairs, strict=True))
    figures: Figures = {"exact match on held-out combinations": right / count, "held-out sentences": count}
    if checkpoint.attention_layer is not None:
        figures["alignment agreement"] = measure_alignment(model, source, target, pairs[:500], 0)
    return figures | {f"“{EXAMPLE}”": translate(model, source, target, [EXAMPLE])[0]}


def translate(
    model: Translator, source: Tokenizer, target: Tokenizer, texts: Sequence[str], max_new_tokens: int = MAX_TARGET - 1
) -> list[str]:
    """Translate texts greedily."""
    answers: list[str] = []
    for first in range(0, len(texts), 250):
        ids, lengths = _source([encoding.ids for encoding in source.encode_batch(texts[first : first + 250])])
        rows = answer_by_steps(
            model, ids, lengths, memory_lengths=lengths, start=START, end=END, max_new_tokens=max_new_tokens
        )
        answers += target.decode_batch(rows)
    return answers


def _checkpoint(family: str, description: str, model: Translator, source: Tokenizer, target: Tokenizer) -> Checkpoint:
    """Return a translator as a checkpoint."""
    config = model.config
    text = bundle_pb2.TextSpec(
        source_tokenizer="source.json",
        target_tokenizer="target.json",
        source_vocab_size=config.source_vocab_size,
        target_vocab_size=config.target_vocab_size,
        start_id=START,
        end_ids=[END],
        pad_id=PAD,
        max_source_tokens=config.max_source_tokens,
        max_total_tokens=config.max_target_tokens,
        max_new_tokens=config.max_target_tokens,
        source_languages=["en"],
        target_languages=["es"],
    )
    return Checkpoint(
        family=family,
        description=description,
        model=model,
        golden=bundle_pb2.Golden(text=EXAMPLE),
        text=text,
        max_new_tokens=config.max_target_tokens,
        attention_layer=0 if model.attention_heads else None,
        files={"source.json": source.to_str().encode(), "target.json": target.to_str().encode()},
    )


def _source(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    return pad(rows, PAD), torch.tensor([len(row) for row in rows], dtype=torch.int32)
