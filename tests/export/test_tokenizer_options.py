"""Each key of a tokenizer_config.json, set to other values: a text is read as transformers reads it, or it is told."""

import json
import re
import shutil

import pytest
from tokenizer_directories import OLDER, config_of, reference, write
from tokenizers import Tokenizer

from weft_export.converters.text.side import read_text_side
from weft_export.errors import CheckpointError

TEXTS = ("a b", " a", "Ab é", "don't", "12 345", "a!?", "漢字", "<s>a", "a <mask> b")


def their_ids(directory):
    """What transformers makes of texts; None where it refuses the directory.

    Without the tokens around a source that says its language: a request names it here.
    """
    try:
        tokenizer = reference(directory)
        if hasattr(tokenizer, "src_lang"):
            end = [tokenizer.eos_token_id]
            return [tokenizer(text, add_special_tokens=False).input_ids + end for text in TEXTS]
        return [tokenizer(text).input_ids for text in TEXTS]
    except Exception:  # noqa: BLE001  theirs are of many kinds
        return None


def our_ids(directory):
    """What we make of them, and notes."""
    side = read_text_side(directory, config_of(directory), 4_000)
    tokenizer = Tokenizer.from_str(side.files[side.source_tokenizer].decode())
    return [tokenizer.encode(text).ids for text in TEXTS], side.notes


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("albert", "do_lower_case", None),
        ("albert", "add_prefix_space", None),
        ("camembert", "add_prefix_space", None),
        ("xlm-roberta", "add_prefix_space", None),
        ("albert", "add_bos_token", None),
        ("albert", "add_bos_token", True),
        ("albert", "add_eos_token", False),
        ("albert", "add_eos_token", True),
    ],
)
@pytest.mark.parametrize("is_saved", [False, True], ids=["older", "saved"])
def test_null_is_no_and_albert_is_framed_as_asked(kind, key, value, is_saved, tmp_path):
    """In these classes null means no, not the default. ALBERT's [CLS] and [SEP] give way to options that name others.

    transformers reads the latter only where there is no tokenizer.json.
    """
    directory = write(tmp_path / "older", *OLDER[kind]())
    if is_saved:
        shutil.copytree(directory, tmp_path / "saved")
        reference(directory).save_pretrained(tmp_path / "saved")
        directory = tmp_path / "saved"
    path = directory / "tokenizer_config.json"
    given = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(given | {key: value}))
    assert their_ids(directory) == our_ids(directory)[0]


@pytest.mark.parametrize("kind", ["m2m_100", "marian"])
@pytest.mark.parametrize("key", ["additional_special_tokens", "extra_special_tokens"])
def test_further_special_tokens_are_found_beside_a_vocab_json(kind, key, tmp_path):
    """Where the ids stand apart from the model, too. One that has no id there is refused by its name."""
    model_type, options, files = OLDER[kind]()
    write(tmp_path, model_type, {**(options or {}), key: ["a"]}, files)
    assert their_ids(tmp_path) == our_ids(tmp_path)[0]

    write(tmp_path, model_type, {**(options or {}), key: ["<new>"]}, files)
    with pytest.raises(CheckpointError, match=f"{key} .*has '<new>'"):
        our_ids(tmp_path)


@pytest.mark.parametrize("kind", ["m2m_100", "marian"])
@pytest.mark.parametrize("key", ["pad_token", "cls_token"])
def test_a_named_token_without_an_id_is_told(kind, key, tmp_path):
    """Beside a vocab.json. Its owner gives it an id that the model may have no embedding for."""
    write(tmp_path, *OLDER[kind]())
    assert () == our_ids(tmp_path)[1]
    path = tmp_path / "special_tokens_map.json"
    given = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(given | {key: "<new>"}))
    note = our_ids(tmp_path)[1][0]
    assert note.startswith(f"{key} is '<new>', which has no id in vocab.json")


@pytest.mark.parametrize("file", ["special_tokens_map.json", "tokenizer_config.json"])
def test_a_named_token_without_content_is_refused_by_file_and_name(file, tmp_path):
    """An object has to say its text."""
    write(tmp_path, *OLDER["bert"]())
    path = tmp_path / file
    given = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(given | {"mask_token": {"lstrip": True}}))
    with pytest.raises(CheckpointError, match=f"{file}: mask_token is .*, which is no token"):
        our_ids(tmp_path)


def test_a_refused_further_token_is_told_with_each_key_that_may_have_it(tmp_path):
    """A list of one file goes on with that of another."""
    write(tmp_path, *OLDER["nllb"]())
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"extra_special_tokens": [""]}))
    with pytest.raises(CheckpointError, match=r"additional_special_tokens or extra_special_tokens has an empty token"):
        our_ids(tmp_path)


def test_qwen_finds_special_tokens_as_they_are(tmp_path):
    """Its class adds them once more, without what a file says of the spaces around them."""
    model_type, options, files = OLDER["qwen2"]()
    token = {"content": "a", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
    write(tmp_path, model_type, options, files | {"special_tokens_map.json": {"pad_token": token}})
    assert their_ids(tmp_path) == our_ids(tmp_path)[0]


OBJECT = {"content": "a", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
TYPED = OBJECT | {"__type": "AddedToken"}
MAP = "special_tokens_map.json"


@pytest.mark.parametrize("kind", ["m2m_100", "marian"])
@pytest.mark.parametrize(
    ("file", "said"),
    [
        *((file, {"additional_special_tokens": [each | {"special": special}]})
          for file in (MAP, "tokenizer_config.json") for each in (OBJECT, TYPED) for special in (True, False)),
        ("tokenizer_config.json", {"extra_special_tokens": [TYPED]}),
        (MAP, {"extra_special_tokens": [OBJECT]}),
        (MAP, {"extra_special_tokens": ["a"]}),
        ("tokenizer_config.json", {"extra_special_tokens": {"image_token": "a"}}),
    ],
    ids=str,
)  # fmt: skip
def test_a_further_token_that_is_an_object_is_found_by_its_text_or_not_at_all(kind, file, said, tmp_path):
    """By the classes that run SentencePiece themselves: one with a type is found, without the spaces it says."""
    directory = write(tmp_path, *OLDER[kind]())
    given = json.loads((directory / file).read_text()) if (directory / file).exists() else {}
    (directory / file).write_text(json.dumps(given | said))
    assert their_ids(directory) == our_ids(directory)[0]


@pytest.mark.parametrize("kind", ["m2m_100", "bert"])
def test_an_object_in_the_map_is_special_without_saying_so(kind, tmp_path):
    """Under extra_special_tokens: it is left out of what is written."""
    directory = write(tmp_path, *OLDER[kind]())
    (directory / MAP).write_text(json.dumps({"extra_special_tokens": [{"content": "a", "rstrip": True}]}))
    theirs = reference(directory)
    side = read_text_side(directory, config_of(directory), 4_000)
    ours = Tokenizer.from_str(side.files[side.source_tokenizer].decode())
    ids = theirs("b a b", add_special_tokens=False).input_ids
    assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)


@pytest.mark.parametrize("kind", ["m2m_100", "marian"])
def test_a_usual_special_token_that_is_none_is_told(kind, tmp_path):
    """Its owner writes nothing, or a mark, where the model says it."""
    directory = write(tmp_path, *OLDER[kind]())
    (directory / MAP).write_text(json.dumps({"unk_token": "a"}))
    (note,) = our_ids(directory)[1]
    assert "unk_token is 'a': '<unk>' is no special token then, and is written into answers as it is" == note


FLAGS = ("lstrip", "rstrip", "normalized", "single_word")
FRAMED = "<s>a </s> <s> b</s>x<bos> c<eos> a <mask> b"


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        ("roberta", "bos_token", "<s>"),
        ("roberta", "cls_token", "<s>"),
        ("mpnet", "eos_token", "</s>"),
        ("opt", "eos_token", "</s>"),
        ("llama", "bos_token", "<s>"),
        ("gemma", "mask_token", "<mask>"),
    ],
)
def test_of_names_for_one_text_the_last_says_how_it_is_found(kind, key, text, flag, tmp_path):
    """Such as bos_token and cls_token of RoBERTa, or the symbols of a SentencePiece model."""
    model_type, options, files = OLDER[kind]()
    token = {"__type": "AddedToken", "content": text} | dict.fromkeys(FLAGS, False) | {flag: True}
    write(tmp_path, model_type, {**(options or {}), key: token}, files)
    side = read_text_side(tmp_path, config_of(tmp_path), 4_000)
    ours = Tokenizer.from_str(side.files[side.source_tokenizer].decode())
    assert reference(tmp_path)(FRAMED).input_ids == ours.encode(FRAMED).ids


def test_new_special_tokens_get_their_ids_in_the_order_of_transformers(tmp_path):
    """Of the names, whatever order a class states them in."""
    model_type, options, files = OLDER["deberta"]()
    write(tmp_path, model_type, {**options, "unk_token": "zzz"}, files)
    theirs = reference(tmp_path)
    side = read_text_side(tmp_path, config_of(tmp_path), 4_000)
    assert (theirs.unk_token_id, theirs.mask_token_id) == (side.unk_id, side.mask_id)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("bert", "sep_token", None),
        ("roberta", "cls_token", ""),
        ("opt", "bos_token", ""),
        ("llama", "bos_token", ""),
        ("t5", "eos_token", ""),
        ("pegasus", "mask_token", ""),
        ("m2m_100", "eos_token", "zzz"),
        ("bert", "extra_special_tokens", [""]),
        ("bert", "additional_special_tokens", [""]),
        ("nllb", "model_specific_special_tokens", {"mask_token": "a"}),
        ("nllb", "extra_special_tokens", {"mask_token": "a"}),
        ("nllb", "additional_special_tokens", ["a"]),
    ],
)
def test_a_special_token_that_is_none_is_refused_by_its_name(kind, key, value, tmp_path):
    """Where the class puts it around a text, or into its vocabulary."""
    model_type, options, files = OLDER[kind]()
    write(tmp_path, model_type, {**(options or {}), key: value}, files)
    with pytest.raises(CheckpointError, match=key):
        our_ids(tmp_path)


@pytest.mark.parametrize(("kind", "gone"), [("nllb", "zho_Hant"), ("mbart50", "de_DE")])
def test_a_language_whose_token_is_missing_is_none_of_the_models(kind, gone, tmp_path):
    """The others are served with the ids that their owner gives them. The table of languages has no row for it."""
    saved = write(tmp_path, *OLDER[kind]())
    reference(saved).save_pretrained(saved)
    drop_from_lists(saved, gone)
    edit(saved / "tokenizer.json", drop_token, gone)

    theirs = reference(saved)
    table = read_text_side(saved, config_of(saved), 4_000).languages
    known = [token for token in theirs.get_vocab() if re.fullmatch(r"[a-z]{2,3}_[A-Z][A-Za-z]+", token)]
    assert gone not in known
    assert {code: theirs.convert_tokens_to_ids(code) for code in known} == {
        each.code: each.target_prefix[0] for each in table
    }


def test_a_language_of_m2m100_without_its_id_is_refused_where_others_have_theirs(tmp_path):
    """Its owner numbers it anew then. Where no file lists it as a special token, its id follows from vocab.json."""
    saved = write(tmp_path, *OLDER["m2m_100"]())
    reference(saved).save_pretrained(saved)
    edit(saved / "added_tokens.json", lambda ids: ids.pop("__ba__"))
    drop_added(saved, "__ba__")
    assert reference(saved).convert_tokens_to_ids("__ba__") > 1299
    with pytest.raises(CheckpointError, match="__ba__ is an extra special token"):
        our_ids(saved)

    drop_from_lists(saved, "__ba__")
    (token,) = (each for each in read_text_side(saved, config_of(saved), 4_000).languages if each.code == "ba")
    assert [reference(saved).convert_tokens_to_ids("__ba__")] == list(token.target_prefix)


def edit(path, change, *arguments):
    """Change the JSON of a file, if it is there."""
    if path.exists():
        content = json.loads(path.read_text())
        change(content, *arguments)
        path.write_text(json.dumps(content))


def drop_token(content, gone):
    """Take a token out of a tokenizer.json."""
    content["added_tokens"] = [each for each in content["added_tokens"] if each["content"] != gone]
    vocab = content["model"]["vocab"]
    if isinstance(vocab, dict):
        vocab.pop(gone, None)
    else:
        vocab[:] = [piece for piece in vocab if piece[0] != gone]


def drop_added(saved, gone):
    """Take a token out of added_tokens_decoder."""
    edit(saved / "tokenizer_config.json", lambda options: pop_added(options["added_tokens_decoder"], gone))


def pop_added(tokens, gone):
    """Take it out of this table."""
    for id_ in [id_ for id_, token in tokens.items() if token["content"] == gone]:
        del tokens[id_]


def drop_from_lists(saved, gone):
    """Take a token out of the lists of special tokens."""
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        for key in ("extra_special_tokens", "additional_special_tokens"):
            edit(saved / file, lambda options, key=key: key in options and options[key].remove(gone))


def test_a_tokenizer_of_languages_whose_files_have_none_is_refused(tmp_path):
    """Its owner adds its own list. The advice makes a directory that is read as it reads it."""
    saved = write(tmp_path / "older", *OLDER["nllb"]())
    reference(saved).save_pretrained(saved)
    path = saved / "tokenizer.json"
    content = json.loads(path.read_text())
    content["added_tokens"] = [each for each in content["added_tokens"] if each["content"].startswith("<")]
    path.write_text(json.dumps(content))
    options = json.loads((saved / "tokenizer_config.json").read_text())
    del options["extra_special_tokens"]
    (saved / "tokenizer_config.json").write_text(json.dumps(options))
    with pytest.raises(CheckpointError, match="of this NllbTokenizer have no language"):
        our_ids(saved)

    reference(saved).save_pretrained(saved)
    assert their_ids(saved) == our_ids(saved)[0]


def test_whispers_class_is_for_whisper(tmp_path):
    """Around a text, it puts the marks of a recording. Without it, the model's usual class is read."""
    directory = write(tmp_path, *OLDER["opt"]())
    options = json.loads((directory / "tokenizer_config.json").read_text())
    for said in ("WhisperTokenizer", "WhisperTokenizerFast"):
        (directory / "tokenizer_config.json").write_text(json.dumps(options | {"tokenizer_class": said}))
        with pytest.raises(CheckpointError, match=r"'WhisperTokenizer'.* name the class of this model, or none"):
            our_ids(directory)
    options.pop("tokenizer_class", None)
    (directory / "tokenizer_config.json").write_text(json.dumps(options))
    our_ids(directory)
