"""Each key of each small file beside a tokenizer, of each class: read as transformers reads it, or told by its name."""

import json
import random
import shutil
from dataclasses import dataclass

import pytest
from tokenizer_directories import OLDER, byte_level, config_of, merges_files, reference, write
from tokenizers import Tokenizer

from weft_export.converters.text.kinds import _KINDS as CLASSES
from weft_export.converters.text.settings import ADDED, CONFIG, NAMES, OPTION_KEYS, SPECIAL
from weft_export.converters.text.side import read_text_side
from weft_export.errors import CheckpointError

TEXTS = (
    "a b", " a", "Ab é", "don't", "12 345", "a!?", "漢字", "<s>a", "a <mask> b", "b a b", "xa<new> b", "b <new>c",
    "A [SEP] b", "<|endoftext|> a </s> b", "x <unk> y",
)  # fmt: skip
# What a model writes that reads no texts: ids of byte_level(), the special ones among them.
WRITTEN = [[*range(first, first + 12), first % 5] for first in range(0, 900, 60)]
MOST_IDS = 4_000
FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")


def token(content, *flags, typed=False):
    """A token as JSON has it, with these flags; typed: as tokenizer_config.json of version 4 writes it."""
    made = {"content": content} | {flag: flag in flags for flag in FLAGS}
    return {"__type": "AddedToken"} | made if typed else made


VALUES = [None, True, False, 3, 1.5, "", "x", ["a"], {"a": "b"}]
TOKENS = [
    "", "a", "<new>", "é", None, True, 3, ["a"], {}, {"lstrip": True},
    *(token("a", *flags, typed=typed) for flags in ((), *((flag,) for flag in FLAGS)) for typed in (True, False)),
    token("<new>", "lstrip", "rstrip", typed=True),
]  # fmt: skip
LISTS = [
    None, [], "a", True, {}, ["a"], ["<new>"], ["<new>", "a"], ["<new>", "<new>"], [""], [3], [None],
    *([token("a", *flags, typed=typed)] for flags in ((), *((flag,) for flag in FLAGS)) for typed in (True, False)),
    ["a", token("a", "lstrip", typed=True)], [{"content": "a", "lstrip": True}], [{"content": "<new>"}],
    {"image_token": "a"}, {"image_token": "<new>"},
    {"image_token": token("a", "lstrip", typed=True)}, {"image_token": None}, {"image_token": 3}, {"mask_token": "a"},
]  # fmt: skip
# A class that a change names may have other files.
NO_FILE = ("has neither", "has no tokenizer.json", "is missing", "No such file")
LISTED = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
# Tokens by their names, of which a class may ask for some.
OWN = ("image_token", "cls_token_2", "add_bos_token", "add_eos_token", "mask_token_sent")


@dataclass(frozen=True)
class Change:
    """A file that is written anew: what it holds, and the names of which one must be told if answers differ."""

    file: str
    content: object
    names: tuple[str, ...]


def options(given):
    """Each key of a tokenizer_config.json with each value."""
    # These have other values, below.
    apart = {"tokenizer_class", "added_tokens_decoder", *LISTED, *NAMES, *OWN}
    for key in sorted({*given, *OPTION_KEYS} - apart):
        yield from (Change(CONFIG, given | {key: value}, (key,)) for value in VALUES)
    for name in ["x", None, "", 3, "PreTrainedTokenizerFast", *CLASSES]:
        told = ("tokenizer_class", "class", *([name] if name in CLASSES else []))
        yield Change(CONFIG, given | {"tokenizer_class": name}, told)


def named(file, given):
    """Special tokens by their names, and lists of them, in one of the two files that may have them."""
    for key in (*NAMES, *OWN):
        yield from (Change(file, given | {key: value}, (key,)) for value in TOKENS)
    if file == SPECIAL:
        for key in ("do_lower_case", "add_prefix_space", "split_special_tokens", "legacy", "new_of_version_9"):
            yield from (Change(file, given | {key: value}, (key,)) for value in (True, False))
    for key in LISTED:
        # Tokens that have names are told by these.
        names = [(key, *value) if isinstance(value, dict) else (key,) for value in LISTS]
        yield from (Change(file, given | {key: value}, told) for value, told in zip(LISTS, names, strict=True))
    for values in (["a"], ["<new>"], []):
        both = {"additional_special_tokens": values, "extra_special_tokens": ["é"]}
        yield Change(file, given | both, tuple(both))


def added(given, ids):
    """Tokens with ids, in both forms. ids: those of some tokens, and one that is free."""
    free, far = ids["<free>"], MOST_IDS + 7
    places = {"<new>": free, "a": ids.get("a", free), "é": free}
    forms = [{}, [], None, {"<new>": "x"}, {"<new>": -1}, {"<new>": far}, {"<new>": 3}, {"a": free}, {"<new>": 1.5}]
    forms += [{text: id_} for text, id_ in places.items()]
    for form in forms:
        yield Change(ADDED, form, (ADDED, "added", "embedding", "<new>"))
    decoder = given.get("added_tokens_decoder") or {}
    wrong = [None, [], {"x": token("a")}, {"3": "a"}, {"-1": token("a")}, {str(far): token("<new>")}, {"3": {}}]
    wrong += [{"1.5": token("a")}, {str(free): {"content": 3}}, {str(free): token("<new>") | {"more": 1}}]
    more = [{str(id_): token(text, *flags)} for text, id_ in places.items() for flags in ((), *((f,) for f in FLAGS))]
    again = [{id_: entry | {flag: not entry.get(flag)}} for id_, entry in list(decoder.items())[:6] for flag in FLAGS]
    less = [{id_: entry for id_, entry in decoder.items() if id_ != gone} for gone in list(decoder)[:6]]
    forms = [*wrong, {}, *less, *(decoder | each for each in [*wrong[2:], *more, *again])]
    for form in forms:
        yield Change(CONFIG, given | {"added_tokens_decoder": form}, ("added_tokens_decoder", "added", "embedding"))


def reads(directory):
    """Whether a model is given texts: a Whisper only writes them."""
    return config_of(directory)["model_type"] != "whisper"


def is_siglip(directory):
    """Whether a tokenizer only reads texts, and special tokens in them in a way of its own."""
    path = directory / CONFIG
    said = json.loads(path.read_text()) if path.exists() else {}
    return said.get("tokenizer_class") == "SiglipTokenizer" or config_of(directory)["model_type"] == "siglip"


def texts_for(directory):
    """Texts of which ids are compared."""
    return [text for text in TEXTS if not (is_siglip(directory) and ("</s>" in text or "<unk>" in text))]


def their_answers(directory):
    """Ids of texts, and what is written for them; None where transformers refuses the directory.

    Without the tokens around a source that says its language: a request names it here.
    """
    try:
        tokenizer = reference(directory)
        if not reads(directory):
            ids = WRITTEN
        elif hasattr(tokenizer, "src_lang"):
            end = [tokenizer.eos_token_id]
            ids = [tokenizer(text, add_special_tokens=False).input_ids + end for text in TEXTS]
        else:
            ids = [tokenizer(text).input_ids for text in texts_for(directory)]
        if is_siglip(directory):
            return ids, []
        return ids, [tokenizer.decode(each, skip_special_tokens=True) for each in ids]
    except Exception:  # noqa: BLE001  theirs are of many kinds
        return None


def our_answers(directory):
    """The same of ours, and notes."""
    side = read_text_side(directory, config_of(directory), MOST_IDS)
    # An export of what writes texts has a note for this.
    notes = (*side.notes, *(["clean_up_tokenization_spaces"] if side.cleans_up else []))
    source, target = (
        Tokenizer.from_str(side.files[name].decode()) for name in (side.source_tokenizer, side.target_tokenizer)
    )
    ids = [source.encode(text).ids for text in texts_for(directory)] if reads(directory) else WRITTEN
    if is_siglip(directory):
        return (ids, []), notes
    return (ids, [target.decode(each, skip_special_tokens=True) for each in ids]), notes


def fault(directory, change):
    """What is wrong with how we read a directory after a change; None if nothing is."""
    path = directory / change.file
    before = path.read_bytes() if path.exists() else None
    try:
        path.write_text(json.dumps(change.content))
        expected = their_answers(directory)
        if expected is None:
            return None
        try:
            actual, notes = our_answers(directory)
        except CheckpointError as error:
            return (
                None
                if any(name in str(error) for name in (*change.names, *NO_FILE))
                else f"refused without its name: {error}"
            )
        if any(name in note for name in change.names for note in notes):
            return None
        differ = [what for what, a, b in zip(("ids", "texts"), expected, actual, strict=True) if a != b]
        return f"other {' and '.join(differ)}" if differ else None
    finally:
        path.unlink() if before is None else path.write_bytes(before)


def directory_of(kind, directory, form):
    """A directory of a kind in one of FORMS."""
    write(directory / "older", *KINDS[kind]())
    if form == "older":
        return directory / "older"
    saved = directory / form
    if form == "bare":
        write(saved, config_of(directory / "older")["model_type"])
    else:
        shutil.copytree(directory / "older", saved)
    reference(directory / "older").save_pretrained(saved)
    if form == "map":
        as_of_version_4(saved)
    if form == "bare":
        for path in saved.iterdir():
            if path.name not in {"config.json", "tokenizer.json"}:
                path.unlink()
    return saved


def as_of_version_4(directory):
    """Move the special tokens of a saved directory to special_tokens_map.json, objects and all, as it did."""
    said = json.loads((directory / CONFIG).read_text())
    said.pop("added_tokens_decoder", None)
    special = {key: said.pop(key) for key in (*NAMES, *LISTED) if key in said}
    names = {
        key: {"content": value} | dict.fromkeys(FLAGS[:-1], False) if isinstance(value, str) else value
        for key, value in special.items()
    }
    (directory / SPECIAL).write_text(json.dumps(names))
    (directory / CONFIG).write_text(json.dumps(said))


def ids_in(directory):
    """The ids of some tokens of a directory, and one that none has."""
    vocab = reference(directory).get_vocab()
    return {text: vocab[text] for text in ("a",) if text in vocab} | {"<free>": max(vocab.values()) + 1}


def changes_of(directory):
    """All changes of a directory's small files."""
    given, special = (
        json.loads((directory / name).read_text()) if (directory / name).exists() else {} for name in (CONFIG, SPECIAL)
    )
    yield from options(given)
    yield from named(CONFIG, given)
    yield from named(SPECIAL, special)
    yield from added(given, ids_in(directory))


def swept(directory, changes):
    """The faults of some changes of a directory, by what was changed."""
    faults = {}
    for change in changes:
        if found := fault(directory, change):
            said = {name: change.content.get(name) for name in change.names[:1]} if change.content else change.content
            faults[f"{change.file}: {said}"] = found
    return faults


KINDS = OLDER | {
    "json": lambda: ("llama", None, {"tokenizer.json": byte_level()}),
    "led": lambda: ("bart", {"tokenizer_class": "LEDTokenizer"}, merges_files()),
    "neox": lambda: ("gpt_neox", {"tokenizer_class": "GPTNeoXTokenizer"}, merges_files()),
    "whisper": lambda: ("whisper", {"tokenizer_class": "WhisperTokenizer"}, {"tokenizer.json": byte_level()}),
}
# The older files alone; what transformers 5 saves; what version 4 saved; tokenizer.json alone.
FORMS = ("older", "saved", "map", "bare")
# These have no tokenizer.json, or transformers reads none of this model_type.
NEVER_BARE = ("byt5", "siglip", "marian", "marian-codes", "m2m_100", "nllb")


# A kind has 1,500 changes in each form. Each third is drawn of all keys and values: `-k third-0` is a night's share.
THIRDS = [f"third-{number}" for number in range(3)]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("third", THIRDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_key_of_each_file_is_followed_or_told(kind, form, third, tmp_path):
    """Ids of texts, and what is written for them, are theirs; or a refusal or a note says the key."""
    if form == "bare" and kind in NEVER_BARE:
        pytest.skip("transformers has no tokenizer.json of it")
    directory = directory_of(kind, tmp_path, form)
    assert their_answers(directory) == our_answers(directory)[0]
    changes = list(changes_of(directory))
    random.Random(0).shuffle(changes)
    assert len(changes) > 900
    assert {} == swept(directory, changes[THIRDS.index(third) :: len(THIRDS)])


BYTES, CANONICAL = ({"tokenizer_class": f"{name}Tokenizer"} for name in ("ByT5", "Siglip"))
NO_TOKEN = {key: value for key, value in token("a").items() if key != "__type"}
FEW = [
    ("bert", Change(CONFIG, {"image_token": NO_TOKEN}, ("image_token",))),
    ("bert", Change(CONFIG, {"extra_special_tokens": ["a", token("a", "lstrip", typed=True)]}, ("extra",))),
    ("bert", Change(SPECIAL, {"image_token": NO_TOKEN}, ("image_token",))),
    ("json", Change(CONFIG, {"add_bos_token": "a"}, ("add_bos_token",))),
    ("gpt2", Change(SPECIAL, {"add_bos_token": True}, ("add_bos_token",))),
    ("llama", Change(SPECIAL, {"add_bos_token": None}, ("add_bos_token",))),
    ("bert", Change(CONFIG, {"clean_up_tokenization_spaces": True}, ("clean_up_tokenization_spaces",))),
    ("whisper", Change(CONFIG, {"added_tokens_decoder": {}}, ("added_tokens_decoder",))),
    ("bert", Change(CONFIG, {"added_tokens_decoder": {"-1": token("a")}}, ("added_tokens_decoder",))),
    ("byt5", Change(CONFIG, BYTES | {"added_tokens_decoder": {"384": token("a")}}, ("added_tokens_decoder",))),
    ("byt5", Change(CONFIG, BYTES | {"additional_special_tokens": ["a"]}, ("additional_special_tokens",))),
    ("byt5", Change(CONFIG, BYTES | {"image_token": "a"}, ("image_token",))),
    ("byt5", Change(CONFIG, BYTES | {"eos_token": "</s>", "unk_token": "<unk>"}, ("no token",))),
    ("mpnet", Change(CONFIG, {"unk_token": "<unk>"}, ("unk_token",))),
    ("mpnet", Change(CONFIG, {"cls_token": "<s>", "pad_token": "<pad>"}, ("cls_token",))),
    ("mpnet", Change(CONFIG, {"cls_token": "[CLS]", "sep_token": "[SEP]"}, ("cls_token",))),
    ("albert-cased", Change(CONFIG, CANONICAL, ("tokenizer_class",))),
    ("pegasus", Change(CONFIG, {"mask_token_sent": ""}, ("mask_token_sent",))),
    ("siglip", Change(CONFIG, CANONICAL | {"sep_token": "a"}, ("sep_token",))),
    ("siglip", Change(CONFIG, CANONICAL | {"do_lower_case": None}, ("do_lower_case",))),
]


@pytest.mark.parametrize(("kind", "change"), FEW, ids=lambda each: str(each)[:60])
def test_what_looks_like_a_token_and_is_none(kind, change, tmp_path):
    """A few changes of the sweep, each of which was once read otherwise, without a word."""
    directory = directory_of(kind, tmp_path, "older")
    before = their_answers(directory)
    assert before is not None
    assert fault(directory, change) is None


def test_an_empty_name_of_a_class_is_not_the_usual_one(tmp_path):
    """Its tokenizer.json then stands as it is, where the usual class would put a language around a text."""
    directory = directory_of("mbart", tmp_path, "saved")
    given = json.loads((directory / CONFIG).read_text())
    assert fault(directory, Change(CONFIG, given | {"tokenizer_class": ""}, ("tokenizer_class",))) is None


@pytest.mark.parametrize("value", [{"image_token": "a"}, "a", ["a"], None, {}], ids=str)
@pytest.mark.parametrize("key", ["extra_special_tokens", "additional_special_tokens"])
def test_a_list_of_the_map_does_not_take_the_place_of_what_the_other_file_has(key, value, tmp_path):
    """Tokens by their names are kept beside it. What is no list, and would be read letter by letter, is refused."""
    directory = directory_of("bert", tmp_path, "older")
    (directory / SPECIAL).write_text(json.dumps({"extra_special_tokens": ["b"]}))
    assert fault(directory, Change(CONFIG, {key: value}, (key,))) is None
