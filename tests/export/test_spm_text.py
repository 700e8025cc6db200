"""How SentencePiece reads a text, said in a tokenizers JSON."""

import unicodedata

import pytest
import sentencepiece
from tokenizer_directories import hard_texts, spm

from weft_export.converters.text import spm_model
from weft_export.converters.text.spm_text import MARK, normalizer_of


def both(path, rules="nmt_nfkc", **options):
    """A SentencePiece model as the library has it, and as we read it."""
    content = spm(rules=rules, **options)
    path.write_bytes(content)
    return sentencepiece.SentencePieceProcessor(model_proto=content), spm_model.read_spm_model(path)


def test_every_letter_in_parts_is_composed(tmp_path):
    """Each letter that has a form in parts, Korean syllables too: its parts become what the library makes of them."""
    theirs, model = both(tmp_path / "m")
    ours = normalizer_of(model)
    letters = [char for char in map(chr, range(0x11900)) if unicodedata.normalize("NFD", char) not in {char, ""}]
    assert 12_000 < len(letters)
    for letter in letters:
        parts = unicodedata.normalize("NFD", letter)
        assert theirs.normalize(parts) == ours.normalize_str(parts), (letter, parts)


@pytest.mark.parametrize("rules", ["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "identity"])
@pytest.mark.parametrize("squeezed", [True, False])
def test_texts_are_normalised_as_by_the_library(tmp_path, rules, squeezed):
    """With each set of rules, and spaces kept or removed: hard texts become what the library makes of them.

    Where all spaces are kept, one difference is known: a line end of Windows becomes one space, and not two.
    """
    theirs, model = both(tmp_path / "m", rules, size=800, remove_extra_whitespaces=squeezed, add_dummy_prefix=squeezed)
    ours = normalizer_of(model)
    assert (squeezed, squeezed) == (model.remove_extra_whitespaces, model.add_dummy_prefix)
    for text in hard_texts():
        composed = unicodedata.normalize("NFC", text)
        older = unicodedata.normalize("NFKC", composed) != "".join(unicodedata.normalize("NFKC", c) for c in composed)
        if not older and (squeezed or "\r\n" not in text):
            assert theirs.normalize(text) == ours.normalize_str(text), text


def test_what_a_model_does_not_know_is_marked(tmp_path):
    """A mark stands before and behind each run of characters that no piece has, and nowhere else."""
    _, model = both(tmp_path / "m", size=800, character_coverage=0.98)
    known = {char for piece in model.pieces if piece.kind == spm_model.NORMAL for char in piece.text}
    assert "☃" not in known
    assert {"a", "b"} < known
    ours = normalizer_of(model, marks_unknown=True)
    assert f"▁{MARK}☃{MARK}" == ours.normalize_str("☃")
    assert f"▁a▁{MARK}☃☃{MARK}b" == ours.normalize_str(" a  ☃☃b ")
    assert "▁a▁b" == ours.normalize_str("a b")
    assert "" == ours.normalize_str("  ")
