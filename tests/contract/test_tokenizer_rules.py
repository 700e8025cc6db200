"""Exporter and server refuse the same tokenizers, before a text meets them."""

import json

import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from hostile_tokenizers import HOSTILE, PADDED, normalizers, replace, tokenizer
from weft_export.checkpoints.tokenizer import tokenizer_of
from weft_export.errors import CheckpointError
from weft_proto.tokenizer_rules import growth_of, is_panic
from weft_server.errors import BundleError
from weft_server.preprocessing.tokenizer import Tokenizer as Served


@pytest.mark.parametrize("name", HOSTILE)
def test_both_refuse_a_tokenizer_that_no_text_should_meet(name, tmp_path):
    """It grows a text without bound, or the library panics over it: one sentence of one line says so."""
    content, said = HOSTILE[name]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))

    with pytest.raises(CheckpointError, match=said) as exported:
        tokenizer_of(path.name, path.read_bytes())
    with pytest.raises(BundleError, match=said) as served:
        Served(path)
    assert 1 == len(str(exported.value).splitlines()) == len(str(served.value).splitlines())


def test_no_text_is_padded_to_what_a_file_says(tmp_path):
    """A file may say ten billion tokens."""
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(PADDED))

    assert [0] == tokenizer_of(path.name, path.read_bytes()).encode("a").ids == Served(path).encode("a")


LETTERS = st.text("abé\u0301 ", min_size=1, max_size=3)
STEPS = st.one_of(
    st.builds(replace, LETTERS, st.text("abé ", max_size=3), st.just("String")),
    st.builds(
        replace, st.sampled_from([".", "", "a?", "(?=a)", "[ab]+", "b$", "a(?=.*b)"]), st.text("abé", max_size=2)
    ),
    st.builds(lambda text: {"type": "Prepend", "prepend": text}, LETTERS),
    st.sampled_from([{"type": each} for each in ("NFC", "NFD", "Lowercase", "StripAccents")]),
)


@settings(max_examples=200, deadline=None)
@example(steps=[replace("a", "bb", "String"), replace("b", "aa", "String")] * 4, text="a")
@example(steps=[replace("a", "AAA", "String"), {"type": "Lowercase"}] * 4, text="a")
@given(steps=st.lists(STEPS, min_size=1, max_size=8), text=st.text("abé\u0301 ", min_size=1, max_size=6))
def test_no_text_grows_by_more_than_is_told(steps, text):
    """Whatever steps follow each other, and whatever the text: a form of Unicode makes two letters of one of these."""
    normalizer = Tokenizer.from_str(json.dumps(tokenizer(normalizer=normalizers(*steps)))).normalizer
    try:
        grown = normalizer.normalize_str(text)
    except BaseException as error:
        if not is_panic(error):
            raise
        reject()
    assert len(grown) <= 2 * growth_of(steps) * len(text)
