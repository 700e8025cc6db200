"""Where the tokens of an answer stand in its text, for OpenAI's clients."""

import random
from types import SimpleNamespace

import pytest

import tokenizer_kinds
from weft_server.openai_api.log_probs import completion_log_probs
from weft_server.preprocessing.detokenizer import Detokenizer
from weft_server.preprocessing.tokenizer import Tokenizer
from weft_server.structured_output.token_bytes import spelling_of


@pytest.mark.parametrize(
    ("pieces", "offsets"),
    [
        ([b"a", b"\xe2\x82", b"\xac", b"b"], [0, 1, 1, 2]),
        ([b"a", b"\xe2\x82", b"b", b"c"], [0, 1, 2, 3]),
        ([b"\xff", b"\xc3\xa9", b"\x80", b"a"], [0, 1, 2, 3]),
        ([b"\xe2", b"\xe2\x82\xac", b"", b"a"], [0, 1, 2, 2]),
        ([b"\xf0\x9f", b"\x98", b"\x80a", b"b"], [0, 0, 0, 2]),
    ],
)
def test_offsets_count_what_the_text_has_of_half_a_character(pieces, offsets):
    """Which is one U+FFFD. A token within a character has the offset where that begins."""
    count, text = len(pieces), b"".join(pieces).decode(errors="replace")
    output = SimpleNamespace(
        token_ids=range(count), tokens=["?"] * count, token_log_probs=[-1.0] * count, top_tokens=(), text=text
    )
    told = completion_log_probs(output, lambda id_, _: pieces[id_])["text_offset"]

    assert offsets == told
    assert text[told[-1] :] == pieces[-1].decode(), "the last token is whole"


@pytest.mark.parametrize("kind", ["words", "letters", "word_piece"])
def test_what_a_token_shows_stands_at_its_offset(tmp_path, kind):
    """It stands there up to the next one's, but for a space at a seam that the decoder has taken out."""
    getattr(tokenizer_kinds, kind)().save(str(tmp_path / "tokenizer.json"))
    vocabulary = Tokenizer(tmp_path / "tokenizer.json").vocabulary
    spelling, draw = spelling_of(vocabulary), random.Random(7)
    # Without bytes, which are many: each token has whole characters.
    shown = [id_ for id_ in vocabulary.tokens if vocabulary.is_text(id_) and id_ < 12]
    num_taken = 0
    for _ in range(200):
        ids = draw.choices(shown, k=12)
        detokenizer = Detokenizer(vocabulary)
        text = detokenizer.steps(ids) + detokenizer.finish()
        scores = [-1.0] * len(ids)
        output = SimpleNamespace(text=text, token_ids=ids, tokens=["?"] * 12, token_log_probs=scores, top_tokens=())
        told = completion_log_probs(output, spelling)["text_offset"]
        for place, (id_, start, end) in enumerate(zip(ids, told, [*told[1:], len(text)], strict=True)):
            piece, stands = spelling(id_, place == 0).decode(), text[start:end]
            assert (piece.replace(" ", ""), True) == (stands.replace(" ", ""), stands in piece), (text, told)
            num_taken += stands != piece
    assert num_taken > {"words": 50}.get(kind, -1)
