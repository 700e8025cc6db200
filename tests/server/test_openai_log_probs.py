"""Where the tokens of an answer stand in its text, for OpenAI's clients."""

from types import SimpleNamespace

import pytest

from weft_server.openai_api.log_probs import completion_log_probs


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
    count = len(pieces)
    output = SimpleNamespace(
        token_ids=range(count), tokens=["?"] * count, token_log_probs=[-1.0] * count, top_tokens=()
    )
    told = completion_log_probs(output, lambda id_, _: pieces[id_])["text_offset"]
    text = b"".join(pieces).decode(errors="replace")

    assert offsets == told
    assert text[told[-1] :] == pieces[-1].decode(), "the last token is whole"
