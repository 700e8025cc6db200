"""The largest numbers that a schema may say are held, as JSON Schema reads them; one more is refused."""

import json

import pytest

from json_followed import following
from weft_server.structured_output.schema_text import Unheld
from weft_server.structured_output.schemas import matcher_schema

# Each with a number that fits it, and one that does not.
HELD = [
    ('{"const": 9007199254740991}', "9007199254740991", "9007199254740990"),
    ('{"const": -9007199254740991}', "-9007199254740991", "9007199254740991"),
    ('{"type": "integer", "minimum": 9007199254740991}', "9007199254740991", "9007199254740990"),
]
# In 32 bits a matcher counts these; whether it can be built is up to what it costs. Of several schemas it counts what
# they have in common: 65537 times 65535, and 5 times 858993450 tenths.
COUNTED = [
    '{"multipleOf": 4294967295}',
    '{"multipleOf": 42949672.95}',
    '{"allOf": [{"multipleOf": 65537}, {"multipleOf": 65535}]}',
    '{"allOf": [{"multipleOf": 0.5}, {"multipleOf": 85899345}]}',
]
REFUSED = [
    ('{"const": 9007199254740992}', "const: the number 9007199254740992 is not held"),
    ('{"multipleOf": 4294967296}', "multipleOf: steps of 4294967296 are not held"),
    ('{"allOf": [{"multipleOf": 65537}, {"multipleOf": 65536}]}', "multipleOf: the product of all of them"),
    ('{"allOf": [{"multipleOf": 65536}, {"multipleOf": 131072}]}', "multipleOf: the product of all of them"),
    ('{"allOf": [{"multipleOf": 0.5}, {"multipleOf": 85899346}]}', "multipleOf: the product of all of them"),
]


@pytest.fixture(scope="module")
def follows(tmp_path_factory):
    """What makes of a schema what says whether a text is a whole answer."""
    with following(tmp_path_factory.mktemp("numbers")) as held:
        yield held


@pytest.mark.parametrize(("schema", "fitting", "other"), HELD)
def test_the_largest_numbers_are_held(follows, schema, fitting, other):
    """The number that fits is a whole answer, and the one beside it is none."""
    takes = follows(schema)
    assert (True, False) == (takes(fitting), takes(other))


@pytest.mark.parametrize("schema", COUNTED)
def test_the_largest_steps_are_a_matchers_to_count(schema):
    """It is told of them as they are."""
    said = json.loads(schema)
    assert said == {word: json.loads(matcher_schema(schema))[word] for word in said}


@pytest.mark.parametrize(("schema", "why"), REFUSED)
def test_one_more_is_refused(schema, why):
    """By the keyword."""
    with pytest.raises(Unheld, match=f"^{why}"):
        matcher_schema(schema)
