"""RWKV's vocabulary of bytes: at each place of a text the longest token, as its authors' own tokenizer takes it."""

import random
import time

import pytest
from rwkv_models import WORDS, lines_of, small_vocabulary, their_tokenizer, world_file

from weft_export.checkpoints.formats import WORLD_FILE
from weft_export.converters.text.world import MAX_TOKEN_BYTES, MAX_TOKENS, read_vocabulary, world_tokenizer
from weft_export.errors import CheckpointError
from weft_server.preprocessing.tokenizer import Tokenizer

# Where the letters of many scripts lie, signs, and all of Unicode.
SCRIPTS = [
    (0x0, 0x80),
    (0x20, 0x250),
    (0x370, 0x600),
    (0x900, 0xE00),
    (0x2000, 0x2100),
    (0x3040, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0x1F300, 0x1FAFF),
    (0x0, 0x110000),
]
OFTEN = [
    "  ",
    "\n\n",
    " the",
    "ing ",
    "\t",
    "0000",
    "====",
    "é",
    "e\u0301",
    "<|endoftext|>",
    "User: ",
    "👩‍👩‍👧",
    "\r\n",
]
HUNDRED_KB = 100_000


def texts(count, seed=0):
    """Random texts, each of several scripts."""
    rng = random.Random(seed)
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 9)):
            first, last = rng.choice(SCRIPTS)
            letters = (rng.randrange(first, last) for _ in range(rng.randrange(1, 12)))
            parts += [chr(letter) for letter in letters if not 0xD800 <= letter < 0xE000]
            parts.append(rng.choice(OFTEN))
        yield "".join(parts)


def longest(tokens, text):
    """The definition: the ids of a text's bytes, the longest token first at each place."""
    given, most, ids, place = text.encode(), max(map(len, tokens)), [], 0
    while place < len(given):
        size = next(size for size in range(most, 0, -1) if given[place : place + size] in tokens)
        ids.append(tokens[given[place : place + size]])
        place += len(given[place : place + size])
    return ids


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The authors' vocabulary, and a server's tokenizer of it."""
    tokens = read_vocabulary(world_file())
    path = tmp_path_factory.mktemp("world") / "tokenizer.json"
    path.write_text(world_tokenizer(tokens).to_str(), encoding="utf-8")
    return tokens, Tokenizer(path)


def test_a_text_has_the_longest_tokens_and_comes_back(world):
    """In all scripts, also where a token is a part of a character; written token by token, nothing is lost."""
    tokens, tokenizer = world
    assert (65_529, 65_530) == (len(tokens), tokenizer.num_ids)
    for text in ["", " ", "a" * 300, " " * 300, *OFTEN, *texts(100)]:
        ids = tokenizer.encode(text)
        assert longest(tokens, text) == ids
        assert text == tokenizer.decode(ids)


@pytest.mark.long
def test_a_text_has_the_tokens_of_the_authors_tokenizer(world):
    """Of thousands of texts each id."""
    _, tokenizer = world
    theirs = their_tokenizer()
    for text in texts(5000, seed=1):
        assert theirs.encode(text) == tokenizer.encode(text)


@pytest.mark.parametrize("unit", ["def f(x): return x + 1\n", "漢字かな", "a", " ", "=", "👩‍👩‍👧", "\x00"])
def test_a_long_text_is_cut_in_time(unit, world):
    """100 kB of anything takes well under a second, since no place of a text is looked at from two others."""
    _, tokenizer = world
    text = unit * (HUNDRED_KB // len(unit.encode()))
    start = time.process_time()
    tokenizer.encode(text)
    assert 0.9 > time.process_time() - start


def test_a_vocabulary_that_leads_astray_is_as_quick(tmp_path):
    """A token of 128 bytes of which each place of a text begins all but the last: one byte at a time is left."""
    small_vocabulary(tmp_path, ["a" * (MAX_TOKEN_BYTES - 1) + "b"])
    tokenizer = world_tokenizer(read_vocabulary(tmp_path / WORLD_FILE))
    start = time.process_time()
    encoding = tokenizer.encode("a" * HUNDRED_KB)
    assert 0.9 > time.process_time() - start
    assert HUNDRED_KB == len(encoding.ids)


def test_each_token_stands_where_its_letters_are(world):
    """Tokens that share a character have its place, and an end of texts is not read out of a text."""
    _, tokenizer = world
    text = "Größe 漢字 🎉 <|endoftext|>"
    spans = tokenizer.split(text)
    assert 0 not in [span.id for span in spans]
    covered = set().union(*(range(span.start, span.end) for span in spans))
    assert {place for place, letter in enumerate(text) if not letter.isspace()} <= covered
    for span in spans:
        piece = tokenizer.vocabulary.raw[span.id]
        assert piece.strip() in text[span.start : span.end].encode()


def test_a_small_vocabulary_is_read_as_its_lines_say(tmp_path):
    """Strings and bytes as Python writes them, with either quote; the last line may end as the others do."""
    small_vocabulary(tmp_path, [*WORDS, "don't", 'say "', "both '\"", "a\tb"])
    tokens = read_vocabulary(tmp_path / WORLD_FILE)
    assert {"don't", 'say "', "both '\"", "a\tb", "漢字"} <= {token.decode(errors="replace") for token in tokens}
    tokenizer = world_tokenizer(tokens)
    text = "don't say \"the then\n\n漢字\U0001f389 漣"
    assert longest(tokens, text) == tokenizer.encode(text).ids


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("300 'ab' 3", "line 257 is not an id, a token as Python writes it, and its length of at most 128 bytes: 300"),
        ("300 'ab'", "line 257 is not"),
        ("x 'ab' 2", "line 257 is not"),
        ("12345678 'ab' 2", "line 257 is not"),
        ("300 ab 2", "line 257 is not"),
        ("300 ['ab'] 1", "line 257 is not"),
        ("300 '' 0", "line 257 is not"),
        ("300 '\\ud800' 3", "line 257 is not"),
        ("300 print('ab') 2", "line 257 is not"),
        (f"300 {'(' * 900} 2", "line 257 is not"),
        (f"300 '{'a' * 129}' 129", "line 257 is not"),
        (f"300 '{'a' * 5000}' 5000", "line 257 is not"),
        ("", "line 257 is not"),
        ("300 'a' 1", "line 257 has a token or an id that another one has"),
        ("256 'ab' 2", "line 257 has a token or an id that another one has"),
        ("0 'ab' 2", "line 257 has a token or an id that another one has, or 0, which ends a text"),
    ],
)
def test_a_line_that_says_something_else_is_refused(line, complaint, tmp_path):
    """By its number. No code in it is run."""
    (tmp_path / WORLD_FILE).write_text("\n".join([*lines_of([]), line, "301 'abc' 3\n"]))
    with pytest.raises(CheckpointError, match=complaint):
        read_vocabulary(tmp_path / WORLD_FILE)


def test_a_line_that_is_too_long_is_not_parsed(tmp_path, monkeypatch):
    """Python's own parser may end the process over what is nested deeply."""
    monkeypatch.setattr("ast.literal_eval", lambda text: pytest.fail(f"parsed {len(text)}") if len(text) > 1024 else "")
    (tmp_path / WORLD_FILE).write_text("\n".join([f"1 {'-' * 100_000}1 1", *lines_of([])]))
    with pytest.raises(CheckpointError, match="line 1 is not"):
        read_vocabulary(tmp_path / WORLD_FILE)


def test_a_vocabulary_that_cannot_read_all_texts_is_refused(tmp_path):
    """Each byte needs a token, and there are at most so many."""
    path = tmp_path / WORLD_FILE
    path.write_text("\n".join(["300 'ab' 2", *lines_of([])[1:]]))
    with pytest.raises(CheckpointError, match="has no token of the byte 0, so not every text could be read"):
        read_vocabulary(path)
    path.write_text("1 'a' 1\n")
    with pytest.raises(CheckpointError, match="has 1 lines; 256 to 131072 are read"):
        read_vocabulary(path)
    path.write_text("\n" * MAX_TOKENS * 2)
    with pytest.raises(CheckpointError, match="lines; 256 to 131072 are read"):
        read_vocabulary(path)
    path.write_bytes(b"1 '\xff' 1\n")
    with pytest.raises(CheckpointError, match="is not UTF-8"):
        read_vocabulary(path)
