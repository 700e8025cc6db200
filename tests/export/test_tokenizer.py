"""What a server would refuse as a source is none for the exporter."""

from dataclasses import replace

import pytest
from tiny import CHECKPOINTS
from tokenizers import Regex, Tokenizer, models, normalizers, processors

from weft_export.checkpoints.tokenizer import encode_source, read_tokenizer, tokenizer_of
from weft_export.errors import CheckpointError
from weft_proto.v1 import bundle_pb2, common_pb2


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


def test_a_file_is_parsed_once_for_all_who_read_it():
    """Of a large vocabulary that takes a second. Where texts are cut, and where not, are two tokenizers of one file."""
    checkpoint = CHECKPOINTS["tiny-text"]()
    name, words = checkpoint.text.source_tokenizer, "the big dog eats " * checkpoint.text.max_source_tokens
    whole = read_tokenizer(checkpoint, name)
    cutting = bundle_pb2.TextSpec()
    cutting.CopyFrom(checkpoint.text)
    cutting.truncation_side = common_pb2.TRUNCATION_SIDE_RIGHT
    cut = read_tokenizer(replace(checkpoint, text=cutting), name)
    assert cutting.max_source_tokens == len(cut.encode(words)) < len(whole.encode(words))
    content = bytes(bytearray(checkpoint.files[name]))  # another object
    assert whole is tokenizer_of("anywhere", content)
    assert whole is read_tokenizer(replace(checkpoint, golden=checkpoint.golden), name)
