"""Exporter and server find the tokens of a text in the same places: each side of the wall has the same code."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

from normalizers import NORMALIZERS
from weft_export.checkpoints.offsets import Offsets as ExporterPlaces
from weft_server.preprocessing.offsets import Offsets as ServerPlaces


@pytest.mark.parametrize("kind", NORMALIZERS)
@settings(max_examples=60, deadline=None)
@given(text=st.text("aeoz \u0301\u0323\u1112\u1161ﬁ👩\u200d\x01\u200b`.<", max_size=20))
def test_exporter_and_server_find_the_same_places(kind, text):
    """For any normaliser and text, also behind added tokens, where some normalisers forget what they delete."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    if NORMALIZERS[kind]:
        tokenizer.normalizer = NORMALIZERS[kind]
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(?m)."), "isolated")
    tokenizer.add_tokens([AddedToken("<", normalized=False)])
    encoding = tokenizer.encode(text)

    assert ExporterPlaces(tokenizer).of(text, encoding) == ServerPlaces(tokenizer).of(text, encoding)
