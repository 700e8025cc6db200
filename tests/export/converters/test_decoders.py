"""Decoder-only checkpoints of others: our logits and tokens are theirs."""

import pytest
import torch
from decoder_kinds import DECODERS
from foreign import LOGITS, NUM_LONG, converted, furthest, greedy, made, their_greedy, token_rows

from weft_export.graphs.answering import Row

LENGTHS = (7, 1, 23, 12)
NEW_TOKENS = 64


def check(kind, seed, directory):
    """Hold one random model to transformers: whole sequences, and 64 greedy tokens of ragged rows in one batch."""
    theirs = made(kind, seed, directory, max_shard_size="50KB" if seed % 2 else "5GB")
    ours = converted(directory, max_tokens=96)
    vocab_size = theirs.config.get_text_config().vocab_size
    rows = token_rows(vocab_size, LENGTHS, seed)

    (longest,) = token_rows(vocab_size, (96,), seed)
    with torch.inference_mode():
        expected = theirs(torch.tensor([longest])).logits[0]
        actual = ours.model.decode(torch.tensor([longest]))[0]
    assert LOGITS >= furthest(actual, expected)

    expected = [their_greedy(theirs, {"input_ids": torch.tensor([row])}, NEW_TOKENS) for row in rows]
    assert expected == greedy(ours, [Row(None, list(row)) for row in rows], NEW_TOKENS)


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name)
def test_a_decoder_writes_what_transformers_writes(kind, tmp_path):
    """Logits within 1e-4 at every place, and the same 64 greedy tokens from prompts of other lengths in one batch."""
    check(kind, 0, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.name)
def test_so_do_random_decoders(kind, seed, tmp_path):
    """The same law for twenty random configurations."""
    check(kind, seed, tmp_path)
