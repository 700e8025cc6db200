"""`oneOf` of constants: it is held where no two options have the same value, as JSON Schema calls values the same."""

import json

import pytest

from json_followed import following
from weft_server.errors import InvalidRequest
from weft_server.structured_output.schemas import matcher_schema

VALUES = ["1", "2", "3", "1.5", "0", "true", "false", "null", '"1"', "[1]", "[2]", '{"a":1}', '{"a":2}']


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """Which of VALUES fit a schema."""
    with following(tmp_path_factory.mktemp("choices")) as held:

        def fitting(schema):
            follows = held(schema)
            return [text for text in VALUES if follows(text)]

        yield fitting


HELD = [
    ('{"oneOf": [{"const": 1}, {"const": 2.0}]}', ["1", "2"]),
    ('{"oneOf": [{"const": 1.5, "title": "some"}, {"enum": [0, 3]}]}', ["3", "1.5", "0"]),
    ('{"oneOf": [{"const": 1}, {"const": true}, {"const": "1"}]}', ["1", "true", '"1"']),
    ('{"oneOf": [{"const": [1]}, {"const": [2]}]}', ["[1]", "[2]"]),
    ('{"oneOf": [{"const": {"a": 1}}, {"const": {"a": 2}}]}', ['{"a":1}', '{"a":2}']),
    ('{"oneOf": [{"type": "integer", "enum": [1, 1.5]}, {"const": 2}]}', ["1", "2"]),
    ('{"oneOf": [{"const": 1}, {"const": 2}], "anyOf": [{"const": 2}, {"const": 3}]}', ["2"]),
    ('{"oneOf": [{"const": 1}, {"const": 2}], "allOf": [{"type": "integer"}]}', ["1", "2"]),
]
REFUSED = [
    '{"oneOf": [{"const": 1}, {"const": 1.0}]}',
    '{"oneOf": [{"const": 0}, {"const": -0.0}]}',
    '{"oneOf": [{"const": [1]}, {"const": [1e0]}]}',
    '{"oneOf": [{"const": {"a": 1, "b": 2}}, {"const": {"b": 2.0, "a": 1}}]}',
    '{"oneOf": [{"enum": [1, 2]}, {"enum": [2.0, 3]}]}',
    '{"oneOf": [{"const": 1}, {"type": "number"}]}',
]


@pytest.mark.parametrize(("schema", "fitting"), HELD)
def test_other_values_exclude_each_other(values, schema, fitting):
    """Numbers, texts, lists and objects; true is not 1."""
    assert fitting == values(schema)


@pytest.mark.parametrize("schema", REFUSED)
def test_a_value_in_two_options_is_refused(values, schema):
    """1 is 1.0, also deep inside, and an object is the same in another order. Nothing fits such a oneOf there."""
    with pytest.raises(InvalidRequest, match="oneOf: its options may overlap"):
        values(schema)


@pytest.mark.parametrize("text", ["1", "1.0", "1e0", "0.1e1"])
def test_a_number_is_its_value(text):
    """However it is spelt: an answer has it as the shortest."""
    schema = json.loads(matcher_schema('{"const": NUMBER, "enum": [NUMBER]}'.replace("NUMBER", text)))
    assert (1, [1]) == (schema["const"], schema["enum"])
    assert isinstance(schema["const"], int)
