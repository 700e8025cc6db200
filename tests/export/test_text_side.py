"""What is read of a Hugging Face directory about texts is what transformers makes of it."""

import json
import random
import shutil
from unicodedata import normalize

import pytest
import sentencepiece
import transformers
from tokenizer_directories import OLDER, config_of, hard_texts, marian_files, reference, spm, write
from tokenizers import Tokenizer

from weft_export.converters.text.side import read_text_side
from weft_proto.v1 import bundle_pb2
from weft_server.preprocessing.text_stream import TextStream
from weft_server.preprocessing.tokenizer import Tokenizer as ServerTokenizer

# ByT5's class says so of a text that ends with its end.
pytestmark = pytest.mark.filterwarnings("ignore:This sequence already has")
VOCAB_SIZE = 5000
ENCODERS = [
    "albert",
    "albert-cased",
    "bert",
    "bert-cased",
    "camembert",
    "deberta",
    "deberta-punct",
    "distilbert",
    "electra",
    "mpnet",
    "roberta",
    "xlm-roberta",
]


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


def encoded(side, texts, language):
    """The ids of texts as a server gives them to a model: between those of their language."""
    ours = Tokenizer.from_buffer(side.files[side.source_tokenizer]).encode_batch(texts)
    language = language or bundle_pb2.Language()
    before, after = [*language.target_before, *language.source_before], language.source_after
    return [[*before, *encoding.ids, *after] for encoding in ours]


def may_be_read_otherwise(tokenizer, text):
    """Whether a text is of a class that SentencePiece itself reads otherwise than its tokenizers JSON.

    transformers runs SentencePiece itself for M2M100 and SigLIP, whose JSON does not compose letters of older
    encodings, such as half-width kana, with what follows. And it does so for Marian. There two more classes are known:
    a text that begins with what looks like a language's code, and is none of the model's; and one whose pieces have the
    same score in several orders. Behind a text that ends with ByT5's end, its class puts no second one. And SigLIP's
    reads special tokens in a text, which no label has, in a way of its own.
    """
    if isinstance(tokenizer, transformers.ByT5Tokenizer):
        return text.rstrip().endswith("</s>")
    is_siglip = isinstance(tokenizer, transformers.SiglipTokenizer)
    if is_siglip and ("</s>" in text or "<unk>" in text):
        return True
    if not is_siglip and not isinstance(tokenizer, transformers.MarianTokenizer | transformers.M2M100Tokenizer):
        return False
    composed = normalize("NFC", text)
    if normalize("NFKC", composed) != "".join(normalize("NFKC", char) for char in composed):
        return True
    if not isinstance(tokenizer, transformers.MarianTokenizer):
        return False
    begins = text.startswith(">>") and "<<" in text
    return (begins and text[: text.find("<<") + 2] not in tokenizer.get_vocab()) or text.startswith("a" * 99)


def check_equal(directory, tokenizer):
    """The ids of all hard texts are equal, and so are the special tokens.

    A Marian of several languages has the one that is wanted before a text, here and there: a code in a text is text.
    """
    side = read_text_side(directory, config_of(directory), VOCAB_SIZE)
    code = getattr(tokenizer, "src_lang", None)
    language = next((each for each in side.languages if each.code == code), None)
    assert (code in {each.code for each in side.languages}) == (language is not None)
    told = next((each for each in side.languages if each.target_before), None)
    theirs = [told.code + text if told else text for text in hard_texts()]
    expected = tokenizer(theirs)["input_ids"]
    for text, ids, own in zip(theirs, expected, encoded(side, hard_texts(), language or told), strict=True):
        assert ids == own or may_be_read_otherwise(tokenizer, text), text
    expected = [getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", "unk")]
    assert expected == [side.bos_id, side.eos_id, side.pad_id, side.unk_id]
    assert [] == [note for note in side.notes if "embedding" in note]


def test_older_files_make_the_same_tokenizer(older):
    """vocab.txt, merges.txt and SentencePiece models: ids and texts are those of transformers, special tokens too."""
    check_equal(*older)


def test_a_saved_tokenizer_is_the_same(saved):
    """So are those of a directory that transformers has written, where tokenizer.json holds it all."""
    check_equal(*saved)


@pytest.mark.parametrize("older", ENCODERS, indirect=True)
def test_two_texts_join_as_transformers_joins_them(older, saved):
    """For an encoder, which may be a cross-encoder: the ids of both, and the segments of those that have any."""
    for directory, tokenizer in (older, saved):
        side = read_text_side(directory, config_of(directory), VOCAB_SIZE)
        ours = Tokenizer.from_buffer(side.files[side.source_tokenizer])
        for pair in zip(hard_texts(), reversed(hard_texts()), strict=True):
            expected, own = tokenizer(*pair, return_token_type_ids=True), ours.encode(*pair)
            assert (expected["input_ids"], expected["token_type_ids"]) == (own.ids, own.type_ids), pair


def test_answers_stream_as_transformers_decodes_them(older, tmp_path):
    """Any pieces, and those of all hard texts: a server's stream, joined, is what transformers gives for them all.

    Bytes alone are left out: of some that are no UTF-8 the two make other numbers of U+FFFD.
    """
    directory, tokenizer = older
    if isinstance(tokenizer, transformers.SiglipTokenizer):
        pytest.skip("no model writes its tokens")
    side = read_text_side(directory, config_of(directory), VOCAB_SIZE)
    file = tmp_path / side.target_tokenizer
    file.write_bytes(side.files[side.target_tokenizer])
    ours = ServerTokenizer(file)
    # Pieces of the rare white space that is no space, which transformers may strip.
    odd = {id_ for id_, token in ours.vocabulary.tokens.items() if token != token.strip() or token.startswith("<0x")}
    pieces = [id_ for id_ in range(len(tokenizer)) if id_ in ours.vocabulary.tokens and id_ not in odd]
    draw = random.Random(0)
    answers = [draw.choices(pieces, k=draw.randrange(40)) for _ in range(100)]
    for ids in (*tokenizer(hard_texts())["input_ids"], *answers):
        stream = TextStream(ours)
        streamed = "".join([*(stream.push([id_]) for id_ in ids), stream.finish()])
        expected = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert expected == streamed == ours.decode(ids), ids


def test_every_language_is_given_as_transformers_gives_it(older):
    """For each language that a model has, the ids around a source and at the answer's start are equal."""
    directory, tokenizer = older
    side = read_text_side(directory, config_of(directory), VOCAB_SIZE)
    for language in side.languages:
        if language.target_before:
            text = f"{language.code} Hello 😀"
        else:
            tokenizer.src_lang, text = language.code, "Hello 😀"
            id_of = getattr(tokenizer, "get_lang_id", tokenizer.convert_tokens_to_ids)
            assert [id_of(language.code)] == language.target_prefix
        assert tokenizer(text)["input_ids"] == encoded(side, ["Hello 😀"], language)[0]
    tags = [language.tag for language in side.languages]
    assert len(tags) == len(set(tags))
    assert tags == [] or tuple(tags) == side.target_languages


def test_pieces_without_an_id_are_unknown(tmp_path):
    """Marian's model may know pieces that vocab.json has not: with spare ids, all from vocab_size on mean unknown."""
    source, text = spm(size=900), "a text and no text"
    pieces = sentencepiece.SentencePieceProcessor(model_proto=source).encode(text, out_type=str)
    missing = sorted(set(pieces))[-2:]
    directory = write(tmp_path, "marian", None, marian_files(source, spm(), without=missing))
    tokenizer = reference(directory)
    size = len(tokenizer)
    side = read_text_side(directory, config_of(directory), size, spare_ids=True)
    assert (2, ()) == (side.num_unknown, side.notes)
    ids = encoded(side, [text], None)[0]
    assert {size, size + 1} == {id_ for id_ in ids if id_ >= size}
    assert tokenizer(text)["input_ids"] == [id_ if id_ < size else side.unk_id for id_ in ids]

    without = read_text_side(directory, config_of(directory), size)
    assert (0, 1) == (without.num_unknown, len(without.notes))
    assert max(encoded(without, [text], None)[0]) < size


def test_a_tokenizer_neither_cuts_nor_pads(older):
    """Each file is without truncation and padding. It is one for both directions, but for Marian's two models."""
    directory, tokenizer = older
    side = read_text_side(directory, config_of(directory), VOCAB_SIZE)
    for file in side.files.values():
        content = json.loads(file)
        assert (None, None) == (content["truncation"], content["padding"])
    assert isinstance(tokenizer, transformers.MarianTokenizer) == (side.source_tokenizer != side.target_tokenizer)
