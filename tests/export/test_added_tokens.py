"""Tokens that somebody added to a tokenizer: found in a text, and written into an answer, as transformers does it."""

import json
import shutil

import pytest
from tokenizer_directories import OLDER, config_of, marian_files, reference, spm, write
from tokenizers import AddedToken, Tokenizer

from weft_export.converters.text.side import read_text_side
from weft_export.errors import CheckpointError
from weft_proto.v1 import bundle_pb2

VOCAB_SIZE = 5000
ADDED = (
    AddedToken("<new>", special=True),
    AddedToken("wug"),
    AddedToken("<left>", lstrip=True),
    AddedToken("<right>", rstrip=True),
    AddedToken("<both>", lstrip=True, rstrip=True, special=True),
    AddedToken("Raw", normalized=False),
    AddedToken("two words"),
)
PATTERNS = ("a {0} b", "a{0}b", "a  {0}  b", "({0})", "{0}{0}.")


def check(directory, tokenizer, vocab_size=VOCAB_SIZE, further=()):
    """Expect the ids of texts with each token of theirs and these further ones, and the texts of these ids."""
    side = read_text_side(directory, config_of(directory), vocab_size)
    source, target = (
        Tokenizer.from_buffer(side.files[name]) for name in (side.source_tokenizer, side.target_tokenizer)
    )
    code = getattr(tokenizer, "src_lang", None)
    language = next((each for each in side.languages if code and each.code == code), bundle_pb2.Language())
    texts = [pattern.format(token) for token in ADDED for pattern in PATTERNS]
    # And with those that its class adds.
    texts += [
        f"a {token} b{token}c" for token in (*tokenizer.all_special_tokens, *tokenizer.get_added_vocab(), *further)
    ]
    for text in texts:
        ids = tokenizer(text)["input_ids"]
        assert ids == [*language.source_before, *source.encode(text).ids, *language.source_after], text
        expected = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert expected == target.decode(ids), text
    return side


def with_all_spaces():
    """A Marian whose model keeps every space, so that it shows which of them a token takes."""
    model = spm(rules="identity", size=900, remove_extra_whitespaces=False)
    return "marian", None, marian_files(model, model)


@pytest.mark.parametrize("kind", ["m2m_100", "marian-codes", "marian-spaces", "mbart", "pegasus"])
def test_added_tokens_of_a_saved_tokenizer(kind, tmp_path):
    """With their flags, special or not, in a directory that transformers has saved."""
    directory = write(tmp_path / "older", *{**OLDER, "marian-spaces": with_all_spaces}[kind]())
    theirs = reference(directory)
    theirs.add_tokens([*ADDED])
    saved = tmp_path / "saved"
    theirs.save_pretrained(saved)
    shutil.copy(directory / "config.json", saved)
    check(saved, reference(saved))


@pytest.mark.parametrize("kind", ["gemma", "marian", "mbart", "pegasus", "t5"])
def test_added_tokens_of_older_files(kind, tmp_path):
    """added_tokens.json has their ids, special_tokens_map.json says which of them are special.

    A class's own special tokens, such as languages and sentinels, stay special beside those.
    """
    directory = write(tmp_path, *OLDER[kind]())
    first = len(reference(directory))
    ids = {token.content: first + index for index, token in enumerate(ADDED)}
    (tmp_path / "added_tokens.json").write_text(json.dumps(ids))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": ["<new>", "<both>"]}))
    check(tmp_path, reference(directory))


ADDITIONAL, EXTRA = "additional_special_tokens", "extra_special_tokens"
NOT_SPECIAL = {"__type": "AddedToken", "content": "<new>", "lstrip": True}
# What tokenizer_config.json says, and what special_tokens_map.json says.
NAMING = [
    ({ADDITIONAL: ["<new>"]}, {}),
    ({ADDITIONAL: []}, {}),
    ({ADDITIONAL: None}, {}),
    ({ADDITIONAL: [NOT_SPECIAL]}, {}),
    ({EXTRA: ["<new>"], ADDITIONAL: ["a"]}, {}),
    ({EXTRA: {"new_token": "<new>"}}, {}),
    ({ADDITIONAL: ["<new>"]}, {ADDITIONAL: ["<new>"]}),
    ({}, {ADDITIONAL: ["<new>"]}),
    ({}, {ADDITIONAL: []}),
    ({}, {EXTRA: ["<new>"]}),
    ({}, {EXTRA: []}),
]


@pytest.mark.parametrize(
    ("kind", "is_saved"),
    [(kind, False) for kind in ("gemma", "mbart50", "t5")]
    + [(kind, True) for kind in ("camembert", "mbart50", "pegasus")],
)
def test_what_stands_in_the_place_of_a_class_s_own_special_tokens(kind, is_saved, tmp_path):
    """extra_special_tokens does, by whatever file, and so does what tokenizer_config.json calls additional ones.

    What special_tokens_map.json alone calls additional goes as the class says. Of a SentencePiece model it is not read.
    """
    base = write(tmp_path / "base", *OLDER[kind]())
    own = reference(base).all_special_tokens[:7]
    if is_saved:
        reference(base).save_pretrained(base)
    path = base / "tokenizer_config.json"
    given = json.loads(path.read_text()) if path.exists() else {}
    given.pop(EXTRA, None)
    for index, (options, special) in enumerate(NAMING):
        directory = shutil.copytree(base, tmp_path / str(index))
        (directory / "tokenizer_config.json").write_text(json.dumps(given | options))
        (directory / "special_tokens_map.json").write_text(json.dumps(special))
        check(directory, reference(directory), further=own)


def saved_marian(tmp_path, *tokens):
    """A directory of Marian's as transformers saves it, with tokens added; and how many tokens it had before."""
    directory = write(tmp_path / "older", *OLDER["marian"]())
    theirs = reference(directory)
    num_before = len(theirs)
    theirs.add_tokens([*tokens])
    saved = tmp_path / "saved"
    theirs.save_pretrained(saved)
    shutil.copy(directory / "config.json", saved)
    return saved, num_before


def test_an_added_token_without_an_embedding_is_told(tmp_path):
    """Where the model was not resized, such tokens are read as plain text, special ones too."""
    saved, num_before = saved_marian(tmp_path, *ADDED[:2])
    side = read_text_side(saved, config_of(saved), num_before)
    assert ("2 added tokens have no embedding, and are read as plain text: <new>, wug",) == side.notes
    ids = Tokenizer.from_buffer(side.files[side.source_tokenizer]).encode("a <new> wug b").ids
    assert max(ids) < num_before


def test_an_added_word_that_stands_alone_is_told(tmp_path):
    """Their class takes spaces alone for the ends of such a word, and no other tokenizer does."""
    saved, _ = saved_marian(tmp_path, AddedToken("blick", single_word=True))
    side = read_text_side(saved, config_of(saved), VOCAB_SIZE)
    (note,) = side.notes
    assert note.startswith("the added token 'blick' is a single_word")
    text = "a blick b"
    assert (
        reference(saved)(text)["input_ids"] == Tokenizer.from_buffer(side.files[side.source_tokenizer]).encode(text).ids
    )


@pytest.mark.parametrize(("id_", "token"), [("3", "<new>"), ("900", "</s>")])
def test_an_added_token_with_the_id_of_another_is_refused(id_, token, tmp_path):
    """Or with another id than vocab.json gives it: one of the two would be read wrongly."""
    saved, _ = saved_marian(tmp_path)
    path = saved / "tokenizer_config.json"
    options = json.loads(path.read_text())
    path.write_text(json.dumps(options | {"added_tokens_decoder": {id_: {"content": token}}}))
    with pytest.raises(CheckpointError, match=f"added token '{token}' has the id {id_}"):
        read_text_side(saved, config_of(saved), VOCAB_SIZE)


@pytest.mark.parametrize("special", [True, False])
def test_a_token_of_vocab_json_alone_is_found_as_an_added_one(special, tmp_path):
    """No model of text has it as a piece. It is found where a file adds it or names it, with its own id."""
    model_type, options, files = OLDER["marian-codes"]()
    files["vocab.json"] = {**files["vocab.json"], "<mask>": len(files["vocab.json"])}
    directory = write(tmp_path / "older", model_type, options, files)
    theirs = reference(directory)
    pieces = {theirs.spm_source.id_to_piece(id_) for id_ in range(theirs.spm_source.get_piece_size())}
    of_target = max((token for token in theirs.get_vocab() if token.isalpha() and token not in pieces), key=len)
    theirs.add_tokens([AddedToken(token, special=special) for token in ("<mask>", of_target, *"elo")])
    theirs.save_pretrained(tmp_path / "saved")
    shutil.copy(directory / "config.json", tmp_path / "saved")
    saved = reference(tmp_path / "saved")
    side = check(tmp_path / "saved", saved, len(saved))
    assert () == side.notes
    # Wide letters become narrow ones after that: the model reads them, and no added token is looked for there.
    source = Tokenizer.from_buffer(side.files[side.source_tokenizer])
    for token in ("Hello", "<mask>", "<pad>", of_target):
        wide = "".join(chr(ord(each) + 0xFEE0) if each.isascii() else each for each in token)
        assert saved(wide)["input_ids"] == source.encode(wide).ids, token

    # Older files name it without adding it.
    (directory / "special_tokens_map.json").write_text(json.dumps({ADDITIONAL: ["<mask>"]}))
    assert () == check(directory, reference(directory), len(saved)).notes


def test_a_vocabulary_of_the_target_has_other_ids(tmp_path):
    """The files state the ids of added tokens for vocab.json alone: in target_vocab.json they are what stands there."""
    directory = write(tmp_path / "older", *OLDER["marian"]())
    vocab = json.loads((directory / "vocab.json").read_text())
    # One token is not there, and <pad> stands before most others.
    dropped = next(token for token in vocab if token.isalpha())
    order = [token for token in vocab if token not in {"<pad>", dropped}]
    order = [*order[:5], "<pad>", *order[5:]]
    (directory / "target_vocab.json").write_text(json.dumps({token: id_ for id_, token in enumerate(order)}))
    options = {"separate_vocabs": True, ADDITIONAL: [dropped]}
    (directory / "tokenizer_config.json").write_text(json.dumps(options))
    theirs = reference(directory)
    theirs.add_tokens(["<new>"])
    saved = tmp_path / "saved"
    theirs.save_pretrained(saved)
    shutil.copy(directory / "config.json", saved)
    side = read_text_side(saved, config_of(saved), VOCAB_SIZE)
    source, target = (
        Tokenizer.from_buffer(side.files[name]) for name in (side.source_tokenizer, side.target_tokenizer)
    )
    theirs = reference(saved)
    for text in ("a b <pad>", "the house", f"a {dropped} b"):
        assert theirs(text)["input_ids"] == source.encode(text).ids
    ids = theirs(text_target="the house")["input_ids"]
    assert "the house" == theirs.decode(ids, skip_special_tokens=True) == target.decode(ids)
    expected = ["<pad>", order[vocab[dropped]], "<new>"]
    assert expected == [target.id_to_token(id_) for id_ in (5, vocab[dropped], len(vocab))]
    assert ("", "<new>") == (target.decode([5]), target.decode([len(vocab)]))
