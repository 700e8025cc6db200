"""Whatever a constraint says, it is built and can be followed, or is refused by its field, within its bounds."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounded import Bounded
from followed import constraint_of, follow, vocabulary
from mutations import budget, mutated_bytes, mutated_json
from weft_server.errors import InvalidRequest, Overloaded
from weft_server.structured_output.grammars import Grammars

SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/s"}}, "required": ["a"],
     "$defs": {"s": {"type": "string", "pattern": "^[ab]+$", "maxLength": 9}}, "additionalProperties": False},
    {"type": "array", "items": {"anyOf": [{"enum": ["x", 1, None]}, {"const": {"k": [1]}}]}, "maxItems": 3},
    {"allOf": [{"type": "string", "format": "date"}, {"minLength": 2}]},
    {"type": "number", "minimum": -1.5, "exclusiveMaximum": 1e3, "multipleOf": 0.5},
    {"type": "object", "patternProperties": {"^p": {"type": "null"}}, "propertyNames": {"maxLength": 4}},
]  # fmt: skip
REGEXES = [rb"(yes|no), because [a-z ]{1,80}\.", rb"[^\W\d_]+(?:-\p{L}*)?", rb"(?i:a|b)*?\x{263a}{2,}", rb"^\d{1,3}$"]
LARKS = [
    b'start: item ("," item)*\nitem: /[a-z]+/ | NUMBER\nNUMBER: /[0-9]/+',
    b'start: s\ns: "(" s ")" | "a"~2..3 | T?\nT: "x".."z" & /[^y]/\n%ignore " "',
    b'%import common.INT\nstart: INT | x[max_tokens=3]\nx: %json {"type": "integer"}',
]
_grammars = []


def build(kind, source):
    """How long steps of a constraint take, or the field and the message of the refusal."""
    if not _grammars:
        tokenizer = vocabulary(300)
        _grammars.append(Grammars(tokenizer, tokenizer.num_ids + 1, [tokenizer.num_ids], "m", "fuzz"))
        _grammars[0].open()
    try:
        constraint = _grammars[0].build(constraint_of(kind, source))
        return max(follow(constraint, vocabulary_size(), np.random.default_rng(0)), default=0.0)
    except InvalidRequest as error:
        return error.field, error.message
    except Overloaded as error:
        return error.reason


def vocabulary_size():
    """Of `vocabulary(300)`, with an end token."""
    return _grammars[0]._vocab_size


@pytest.fixture(scope="module")
def building():
    """`build` in a process of its own."""
    with Bounded(__file__, "build") as call:
        yield call


def check(said, kind):
    """What is allowed."""
    if isinstance(said, tuple):
        field, message = said
        assert field.startswith(f"decoding.constraint.{kind}")
        assert message.isprintable()
    else:
        assert isinstance(said, float) or said == "MACHINE_BUSY"


def text(data):
    """As a message has it."""
    return data.decode(errors="replace")


@budget(4)
@given(schema=mutated_json(SCHEMAS))
def test_any_schema(building, schema):
    """JSON Schemas with parts replaced."""
    check(building("json_schema", json.dumps(schema)), "json_schema")


@budget(40)
@given(source=st.one_of(mutated_bytes(REGEXES).map(text), st.text("ab(|)[]{}*+?.\\^$1,-&", max_size=30)))
def test_any_regex(building, source):
    """Expressions, changed, and their signs in any order."""
    check(building("regex", source), "regex")


@budget(40)
@given(source=mutated_bytes(LARKS).map(text))
def test_any_lark(building, source):
    """Grammars of Lark, changed."""
    check(building("lark", source), "lark")


@budget(30)
@given(texts=st.lists(st.text(max_size=20), max_size=8))
def test_any_choice(building, texts):
    """Any texts."""
    check(building("choice", texts), "choice")
