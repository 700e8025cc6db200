"""Masked language models: logits are those of transformers' models, and fillings those of its pipeline."""

import json

import pytest
import torch
from encoder_kinds import FILLERS
from foreign import LOGITS, VOCAB, converted, furthest, made, token_rows

MASK = "<end>"
LENGTHS = (7, 2, 40, 12)


def masking(directory):
    """Let a special token that the tokenizer has be the mask."""
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mask_token": MASK}))


@pytest.mark.parametrize("kind", FILLERS, ids=lambda kind: kind.name)
def test_a_masked_language_model_says_what_transformers_says(kind, tmp_path):
    """Logits at any two positions are within 1e-4 for texts of other lengths in one batch."""
    theirs = made(kind, 0, tmp_path)
    masking(tmp_path)
    ours = converted(tmp_path)
    texts = [torch.tensor(row) for row in token_rows(VOCAB, LENGTHS)]
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    positions = torch.stack((lengths - 1, lengths // 2), dim=1).long()
    with torch.inference_mode():
        together = ours.model(torch.nn.utils.rnn.pad_sequence(texts, batch_first=True), lengths, positions)
        for text, row, places in zip(texts, together, positions, strict=True):
            assert LOGITS >= furthest(row, theirs(input_ids=text[None]).logits[0, places])
