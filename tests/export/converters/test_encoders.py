"""Encoder-only checkpoints of others: our logits are theirs."""

import pytest
import torch
from encoder_kinds import CLASSIFIERS, LABELS, TAGGERS
from hf_models import LOGITS, NUM_LONG, VOCAB, converted, furthest, made, token_rows

LENGTHS = (7, 2, 40, 12)


def check(kind, seed, directory):
    """Hold one random model to transformers; our texts lie padded in one batch, theirs alone."""
    theirs = made(kind, seed, directory, max_shard_size="20KB" if seed % 2 else "5GB")
    ours = converted(directory)
    texts = [torch.tensor(row) for row in token_rows(VOCAB, LENGTHS, seed)]
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    with torch.inference_mode():
        together = ours.model(torch.nn.utils.rnn.pad_sequence(texts, batch_first=True), lengths)
        for text, row in zip(texts, together, strict=True):
            expected = theirs(input_ids=text[None]).logits[0]
            assert LOGITS >= furthest(row[: len(text)] if row.dim() == 2 else row, expected)
    assert tuple(LABELS.values()) == ours.labels


@pytest.mark.parametrize("kind", [*CLASSIFIERS, *TAGGERS], ids=lambda kind: kind.name)
def test_an_encoder_says_what_transformers_says(kind, tmp_path):
    """Logits within 1e-4 for texts of other lengths in one batch."""
    check(kind, 0, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", [*CLASSIFIERS, *TAGGERS], ids=lambda kind: kind.name)
def test_so_do_random_encoders(kind, seed, tmp_path):
    """The same law for twenty random configurations."""
    check(kind, seed, tmp_path)
