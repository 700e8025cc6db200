"""Every text that a constraint lets a tokenizer make is what it asks for; what costs too much is refused."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import decoders

import tokenizer_kinds
from few import counts
from json_texts import fits
from weft_proto.v1 import common_pb2
from weft_server.errors import CannotConstrain, InvalidRequest
from weft_server.logits_processors.constraint import START_S
from weft_server.logits_processors.history import History
from weft_server.preprocessing.tokenizer import Tokenizer
from weft_server.structured_output.grammars import Grammars

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "ñ", None, 3]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
REGEX = r"([0-9]{1,3}|[añb ]{2,6}(hola|日本)?)!"
LARK = 'start: item ("," item)*\nitem: WORD | "(" start ")"\nWORD: /[ab]{1,3}/\n'
CHOICE = ["hola", "hello world", "ñandú", "?", "a  b", "日本語 😀", "hell", "/[.]*(x)|\\y+"]


def is_lark(text):
    """Whether a text is one of LARK: what stands in brackets becomes a mark, the innermost first."""
    items = r"([ab]{1,3}|#)(,([ab]{1,3}|#))*"
    while text != (text := re.sub(rf"\({items}\)", "#", text)):
        pass
    return re.fullmatch(items, text)


CONSTRAINTS = {
    "json_schema": (common_pb2.Constraint(json_schema=json.dumps(SCHEMA)), lambda text: fits(json.loads(text), SCHEMA)),
    "regex": (common_pb2.Constraint(regex=REGEX), lambda text: re.fullmatch(REGEX, text)),
    "lark": (common_pb2.Constraint(lark=LARK), is_lark),
    "choice": (common_pb2.Constraint(choice=common_pb2.Choice(texts=CHOICE)), lambda text: text in CHOICE),
}


@pytest.fixture
def opened(tmp_path):
    """Make Grammars of a tokenizer; its last id, which is no token of it, ends answers. Stopped at the end."""
    made = []

    def open_(library):
        library.save(str(tmp_path / "tokenizer.json"))
        tokenizer = Tokenizer(tmp_path / "tokenizer.json")
        end = tokenizer.num_ids + 1
        made.append(Grammars(tokenizer, end + 1, [end], "m", f"test-{len(made)}"))
        made[-1].open()
        return made[-1], tokenizer, end

    yield open_
    for each in made:
        each.stop()


def write(constraint, end, rng, most=60):
    """Choose random tokens among those that may come; the ids without the end, and whether it came. None: no way on."""
    following, ids, history = constraint.begin(History([])), [], History([], room=most)
    while len(ids) < most:
        scores = np.zeros(end + 1, np.float32)
        following.apply(None, scores, history)
        allowed = np.flatnonzero(scores == 0)
        if not len(allowed):
            assert following.refusal(ends=True) is not None
            return ids, None
        token = end if end in allowed and rng.random() < 0.5 else int(rng.choice(allowed))
        following.advance(token, history)
        assert following.refusal(ends=token == end) is None
        if token == end:
            return ids, True
        ids.append(token)
    return ids, False


@pytest.mark.parametrize("make", [tokenizer_kinds.byte_level, tokenizer_kinds.words, tokenizer_kinds.letters])
@pytest.mark.parametrize("kind", CONSTRAINTS)
@pytest.mark.parametrize("num_walks", counts(100, 300))
def test_every_answer_that_ends_is_what_was_asked_for(opened, make, kind, num_walks):
    """The decoded text of random walks that end parses, and all of a choice's texts come up."""
    model, tokenizer, end = opened(make())
    asked, parses = CONSTRAINTS[kind]
    constraint, rng, seen = model.build(asked), random.Random(kind), set()
    for _ in range(num_walks):
        ids, ended = write(constraint, end, rng)
        if ended:
            text = tokenizer.decode(ids)
            assert parses(text), text
            seen.add(text)
    assert len(seen) > 5


@pytest.mark.parametrize("schema", ["true", "{}", '{"type": "array", "items": {"type": "null"}}'])
def test_white_space_has_a_bound(opened, schema):
    """Who only takes spaces where JSON allows them has to go on after 64."""
    model, tokenizer, _ = opened(tokenizer_kinds.byte_level())
    following, history = model.build(common_pb2.Constraint(json_schema=schema)).begin(History([])), History([], room=99)
    (bracket,), (space,) = tokenizer.encode_framed("["), tokenizer.encode_framed(" ")
    following.advance(bracket, history)
    for _ in range(64):
        assert following.next.allowed[space]
        following.advance(space, history)

    assert not following.next.allowed[space]
    assert following.next.allowed.any()


def test_a_fork_goes_its_own_way(opened):
    """What a copy takes does not show in the row that it came from, and it allows what a fresh row allows there."""
    model, tokenizer, end = opened(tokenizer_kinds.byte_level())
    constraint = model.build(CONSTRAINTS["choice"][0])
    (h,) = tokenizer.encode_framed("h")
    row, history = constraint.begin(History([])), History([], room=9)
    row.advance(h, history)
    before = row.next.allowed.tolist()
    other = row.fork()
    rng = random.Random(1)
    while not other.next.is_whole:
        other.advance(int(rng.choice(np.flatnonzero(other.next.allowed))), history)

    assert other.next.allowed[end]
    assert before == row.next.allowed.tolist()
    row.advance(end, history)
    assert "CONSTRAINT_REFUSED" == row.refusal(ends=True).reason
    assert row.refusal(ends=False) is None


def test_a_tokenizer_that_looks_beyond_a_token_takes_no_constraint(opened):
    """The model says so, and a request is told."""
    library = tokenizer_kinds.word_piece()
    library.decoder = decoders.BPEDecoder()
    model, _, _ = opened(library)

    assert not model.takes_constraints
    with pytest.raises(CannotConstrain, match="its tokenizer does not tell"):
        model.build(CONSTRAINTS["regex"][0])


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_usual_grammars_take_little_of_what_they_may(opened, kind):
    """At eight rows of up to 200 tokens, nothing of what they begin with is gone."""
    model, _, end = opened(tokenizer_kinds.byte_level())
    constraint, rng = model.build(CONSTRAINTS[kind][0]), random.Random(1)
    assert START_S == constraint.allowance.left_s
    for _ in range(8):
        write(constraint, end, rng, most=200)
    assert constraint.allowance.left_s > START_S
    assert not constraint.allowance.is_spent


REFUSED = [
    ({"regex": "a\\"}, "it ends with a backslash that escapes nothing"),
    ({"regex": r"a\\" + "\\"}, "it ends with a backslash that escapes nothing"),
    ({"regex": "(?x) a # c\nb"}, r"the flag x is not taken; the characters themselves are written \(?x"),
    ({"regex": r"a\\(?i:b(?msx-i: c))"}, r"the flag x is not taken; the characters themselves are written \(?x"),
    ({"regex": "(b"}, "unclosed group"),
    ({"regex": "(a\nb|c{2,1})"}, "invalid repetition count range, the start must be <= the end"),
    ({"json_schema": '{"type": "strin"}'}, "type: 'strin' is no type of JSON Schema"),
    ({"json_schema": '{"pattern": "(a"}'}, "unclosed group"),
    (
        {"json_schema": '{"properties": {"a": {"$ref": "#/x/0"}}, "x": [{"anyOf": [{"oneOf": [{}, true]}]}]}'},
        "oneOf at /x/0/anyOf/0: its options may overlap. Take anyOf, if an answer may fit several",
    ),
]


@pytest.mark.parametrize(("asked", "why"), REFUSED)
def test_a_refusal_is_a_plain_sentence(opened, asked, why):
    """No word of the grammar that was made of the request's, and nothing whose meaning would be another."""
    model, _, _ = opened(tokenizer_kinds.byte_level())
    with pytest.raises(InvalidRequest) as caught:
        model.build(common_pb2.Constraint(**asked))
    ((kind, _),) = asked.items()
    assert f"decoding.constraint.{kind} is refused: {why}" == caught.value.message
    assert "CONSTRAINT_REFUSED" == caught.value.reason


# A schema, an answer that fits it, and one that a matcher by itself would take for one.
NEARLY = [
    ({"type": "object", "properties": {"role": {"const": "user"}}}, '{"x":1}', '{"r\\u006fle":"admin"}'),
    ({"patternProperties": {"^a$": {"const": 1}}, "type": "object"}, '{"a":1,"b":2}', '{"\\u0061":2}'),
    ({"type": "string", "pattern": "^a.$"}, '"a\x85"', '"a\u2028"'),
    ({"type": "string", "pattern": r"^\s$"}, '"\ufeff"', '"\x85"'),
    ({"type": "string", "pattern": "^[x&&y]$"}, '"&"', '"[x&&y]"'),
    ({"type": "string", "pattern": r"^\<$"}, '"<"', '""'),
    ({"type": "string", "format": "date"}, '"2024-02-29"', '"2023-02-29"'),
    ({"type": "string", "format": "time", "pattern": "Z"}, '"23:59:59Z"', '"12:00:60Z"'),
    ({"type": "string", "format": "hostname"}, '"a-b.c1"', '"xn--x"'),
    ({"prefixItems": [{"const": 1}], "items": {"const": 2}, "additionalItems": {}, "type": "array"}, "[1,2]", "[2]"),
    ({"items": [{}], "anyOf": [{}], "additionalItems": False, "type": "array"}, "[1]", "[1,2]"),
    ({"type": "integer", "minimum": 5, "anyOf": [{}], "exclusiveMinimum": True}, "6", "5"),
    ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}, "a~1b": {"const": 2}}}, "1", "2"),
]


@pytest.mark.parametrize(("schema", "fitting", "wrong"), NEARLY)
def test_a_schema_means_what_json_schema_says(opened, schema, fitting, wrong):
    """Names are themselves however they are written, patterns are of ECMA-262, and dates are of the calendar."""
    model, tokenizer, end = opened(tokenizer_kinds.byte_level())
    constraint = model.build(common_pb2.Constraint(json_schema=json.dumps(schema)))

    def is_whole(text):
        row, history = constraint.begin(History([])), History([], room=99)
        ids = [*tokenizer.encode_framed(text), end]
        return all(row.next.allowed[token] and row.advance(token, history) is None for token in ids)

    assert is_whole(fitting)
    assert not is_whole(wrong)


@pytest.mark.parametrize(
    ("regex", "text"), [(r"a\\", "a\\"), (r"\(\?x\)", "(?x)"), ("(?i-x:a)\nb", "A\nb"), ("a\\\nb", "a\nb")]
)
def test_backslashes_and_flags_that_mean_what_they_say(opened, regex, text):
    """They are taken, and the text is whole."""
    model, tokenizer, _ = opened(tokenizer_kinds.byte_level())
    following, history = model.build(common_pb2.Constraint(regex=regex)).begin(History([])), History([], room=9)
    for token in tokenizer.encode_framed(text):
        following.advance(token, history)
    assert following.refusal(ends=True) is None


@pytest.mark.slow
@pytest.mark.timeout(900)  # of processor time it takes half a minute
def test_hostile_constraints_end_in_bounded_time_and_memory():
    """Each is built or refused within 5 seconds of processor time and 200 MB, and so is each step; nothing crashes."""
    script = Path(__file__).parents[1] / "hostile_grammars.py"
    ended = subprocess.run([sys.executable, script, "5", "200"], capture_output=True, text=True, check=False)

    assert 0 == ended.returncode, ended.stdout[-500:] + ended.stderr[-2000:]
    assert "at most" in ended.stdout
