"""Masked language models: logits are those of transformers' models, and what is none of them is refused."""

from dataclasses import replace

import pytest
import torch
from encoder_kinds import FILLERS, MASK, masking
from hf_models import LOGITS, NUM_LONG, VOCAB, converted, furthest, made, token_rows
from safetensors.torch import load_file, save_file

from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions

LENGTHS = (7, 2, 40, 12)
BERT = FILLERS[0]


def check(kind, seed, directory):
    """Logits at any two positions are within 1e-4 for texts of other lengths in one batch."""
    theirs = made(kind, seed, directory)
    masking(directory)
    ours = converted(directory)
    texts = [torch.tensor(row) for row in token_rows(VOCAB, LENGTHS)]
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    positions = torch.stack((lengths - 1, lengths // 2), dim=1).long()
    with torch.inference_mode():
        together = ours.model(torch.nn.utils.rnn.pad_sequence(texts, batch_first=True), lengths, positions)
        for text, row, places in zip(texts, together, positions, strict=True):
            assert LOGITS >= furthest(row, theirs(input_ids=text[None]).logits[0, places])


@pytest.mark.parametrize("kind", FILLERS, ids=lambda kind: kind.name)
def test_a_masked_language_model_says_what_transformers_says(kind, tmp_path):
    """Logits are theirs; a half of the kinds has its tokens' table in the head too."""
    check(kind, FILLERS.index(kind), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", FILLERS, ids=lambda kind: kind.name)
def test_many_masked_language_models_say_what_transformers_says(kind, seed, tmp_path):
    """The same for other sizes and choices."""
    check(kind, seed, tmp_path)


def test_both_heads_of_a_deberta_are_read(tmp_path):
    """`legacy: false` is that of its authors, whose logits are always of the tokens' table."""
    kind = next(each for each in FILLERS if each.architecture == "DebertaV2ForMaskedLM")
    theirs = made(replace(kind, draw=lambda rng: {**kind.draw(rng), "legacy": False}), 0, tmp_path)
    masking(tmp_path)
    ids = torch.tensor(token_rows(VOCAB, (9,)))
    with torch.inference_mode():
        found = converted(tmp_path).model(ids, torch.tensor([9], dtype=torch.int32), torch.arange(9)[None])
        assert LOGITS >= furthest(found, theirs(input_ids=ids).logits)


def test_tied_tables_that_differ_are_refused(tmp_path):
    """A file may hold the table twice. Where both differ, config.json is wrong about one of them."""
    made(replace(BERT, draw=lambda rng: {**BERT.draw(rng), "tie_word_embeddings": True}), 0, tmp_path)
    masking(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    table = tensors["bert.embeddings.word_embeddings.weight"]
    for factor, refused in ((1, False), (2, True)):
        twice = {**tensors, "cls.predictions.decoder.weight": table * factor}
        save_file(twice, tmp_path / "model.safetensors", {"format": "pt"})
        if refused:
            with pytest.raises(CheckpointError, match=r"cls.predictions.decoder.weight differ in the files"):
                converted(tmp_path)
        else:
            converted(tmp_path)


def test_a_head_for_pretraining_is_passed_over(tmp_path):
    """The files of BERT's authors hold what says whether two sentences follow each other. Nobody asks it."""
    made(BERT, 0, tmp_path)
    masking(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["cls.seq_relationship.weight"] = torch.zeros(2, 4)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    converted(tmp_path)


def test_what_cannot_be_asked_is_refused(tmp_path):
    """A tokenizer without a mask; a golden text without one, or with too many."""
    made(BERT, 0, tmp_path)
    with pytest.raises(CheckpointError, match="it fills masks, and its tokenizer has no mask_token"):
        converted(tmp_path)
    masking(tmp_path)
    bundle = tmp_path / "models" / "m" / "1"
    for golden, times in (("a house", 0), (MASK * 17, 17)):
        with pytest.raises(CheckpointError, match=rf"the golden text has {MASK} {times} times; 1 to 16 are needed"):
            export_checkpoint(tmp_path, bundle, ExportOptions(golden=golden))
