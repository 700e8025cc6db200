"""What is read of a Hugging Face directory about texts is what transformers makes of it."""

import json
import shutil

import pytest
from tokenizer_directories import OLDER, config_of, hard_texts, reference, write
from tokenizers import Tokenizer

from weft_export.converters.text.side import read_text_side

VOCAB_SIZE = 5000


@pytest.fixture(scope="module", params=OLDER)
def older(request, tmp_path_factory):
    """A directory without a tokenizer.json, and what transformers makes of it."""
    model_type, tokenizer_config, files = OLDER[request.param]()
    directory = write(tmp_path_factory.mktemp(request.param), model_type, tokenizer_config, files)
    return directory, reference(directory)


@pytest.fixture(scope="module")
def saved(older, tmp_path_factory):
    """The same as transformers writes it, with a tokenizer.json."""
    directory, tokenizer = older
    other = tmp_path_factory.mktemp("saved")
    shutil.copy(directory / "config.json", other)
    tokenizer.save_pretrained(other)
    return other, reference(other)


def encoded(side, text, language):
    """The ids of a text as a server gives them to a model: between those of its language."""
    ids = Tokenizer.from_buffer(side.files[side.source_tokenizer]).encode(text).ids
    return ids if language is None else [*language.source_before, *ids, *language.source_after]


def check_equal(directory, tokenizer):
    """Ids and texts of all hard texts are equal, and so are the special tokens."""
    side = read_text_side(directory, config_of(directory), VOCAB_SIZE)
    code = getattr(tokenizer, "src_lang", None)
    language = next((each for each in side.languages if each.code == code), None)
    assert (code is None) == (language is None)
    ours = Tokenizer.from_buffer(side.files[side.target_tokenizer])
    for text in hard_texts():
        ids = tokenizer(text)["input_ids"]
        assert ids == encoded(side, text, language), text
        expected = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert expected == ours.decode(ids), text
    expected = [getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", "unk")]
    assert expected == [side.bos_id, side.eos_id, side.pad_id, side.unk_id]
    assert [] == [note for note in side.notes if "embedding" in note]


def test_older_files_make_the_same_tokenizer(older):
    """vocab.txt, merges.txt and SentencePiece models: ids and texts are those of transformers, special tokens too."""
    check_equal(*older)


def test_a_saved_tokenizer_is_the_same(saved):
    """So are those of a directory that transformers has written, where tokenizer.json holds it all."""
    check_equal(*saved)


def test_every_language_is_given_as_transformers_gives_it(older):
    """For each language that a model has, the ids around a source and at the answer's start are equal."""
    directory, tokenizer = older
    side = read_text_side(directory, config_of(directory), VOCAB_SIZE)
    for language in side.languages:
        tokenizer.src_lang = language.code
        assert tokenizer("Hello 😀")["input_ids"] == encoded(side, "Hello 😀", language)
        assert [tokenizer.convert_tokens_to_ids(language.code)] == language.target_prefix
    assert len(side.languages) == len({language.tag for language in side.languages})
    assert tuple(language.tag for language in side.languages) == side.source_languages == side.target_languages


def test_files_are_one_json(older):
    """A tokenizer neither cuts nor pads, and is one file for both directions."""
    directory, _ = older
    side = read_text_side(directory, config_of(directory), VOCAB_SIZE)
    content = json.loads(side.files[side.source_tokenizer])
    assert (None, None) == (content["truncation"], content["padding"])
    assert side.source_tokenizer == side.target_tokenizer
