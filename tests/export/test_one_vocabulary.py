"""Whether an answer can be made of its source's ids."""

import json
from types import SimpleNamespace

import pytest
from tiny import CHECKPOINTS
from tokenizer_directories import OLDER, config_of, write

from weft_export.converters.text.side import read_text_side
from weft_export.graphs.one_vocabulary import has_one_vocabulary
from weft_proto.v1 import bundle_pb2

VOCAB_SIZE = 5000


@pytest.mark.parametrize(("name", "is_one"), [("tiny-t5", True), ("tiny-translate", False)])
def test_one_tokenizer_is_one_vocabulary(name, is_one):
    """Two of other words are not."""
    assert is_one == has_one_vocabulary(CHECKPOINTS[name]())


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("num_spare", [0, 3])
def test_marian_has_one_unless_its_files_have_two(tmp_path, separate, num_spare):
    """Each side's tokenizer marks the pieces of the other. A vocabulary of the target's own has other ids.

    A source may have ids behind those of answers.
    """
    directory = write(tmp_path, *OLDER["marian"]())
    if separate:
        vocab = json.loads((directory / "vocab.json").read_text())
        others = {token: len(vocab) - 1 - id_ for token, id_ in vocab.items()}
        (directory / "target_vocab.json").write_text(json.dumps(others))
        (directory / "tokenizer_config.json").write_text(json.dumps({"separate_vocabs": True}))
    side = read_text_side(directory, config_of(directory), VOCAB_SIZE)
    text = bundle_pb2.TextSpec(
        source_tokenizer=side.source_tokenizer,
        target_tokenizer=side.target_tokenizer,
        source_vocab_size=VOCAB_SIZE + num_spare,
        target_vocab_size=VOCAB_SIZE,
    )
    assert side.source_tokenizer != side.target_tokenizer
    assert separate != has_one_vocabulary(SimpleNamespace(text=text, text_spec=text, files=side.files))
    text.target_vocab_size = VOCAB_SIZE + num_spare + 1
    assert not has_one_vocabulary(SimpleNamespace(text=text, text_spec=text, files=side.files))
