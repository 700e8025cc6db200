"""What a server would refuse as a source is none for the exporter."""

import pytest
from tiny import CHECKPOINTS
from tokenizers import Regex, Tokenizer, models, normalizers, processors

from weft_export.checkpoints.tokenizer import encode_source
from weft_export.errors import CheckpointError


@pytest.mark.parametrize("text", ["....", " .", "."])
def test_a_text_of_which_nothing_is_left_is_no_source(text):
    """With the tokens alone that the tokenizer puts around every text, a model has nothing to read."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "[END]": 1}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Replace(Regex("[ .]+$"), "")
    tokenizer.post_processor = processors.TemplateProcessing(single="$A [END]", special_tokens=[("[END]", 1)])
    checkpoint = CHECKPOINTS["tiny-text"]()
    assert 2 == len(encode_source(checkpoint, tokenizer, "a" + text))
    with pytest.raises(CheckpointError, match="keeps"):
        encode_source(checkpoint, tokenizer, text)
