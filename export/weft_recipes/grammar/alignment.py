"""Attention held to the grammar's word alignment: the rows that have it, the loss that guides, how well they agree."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from weft_export.families.sequence_to_sequence import SequenceToSequence
from weft_export.families.writer import Writer
from weft_recipes.grammar.pairs import Pair
from weft_recipes.shared.training import pad, shuffled
from weft_recipes.shared.vocabulary import PAD, START


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
