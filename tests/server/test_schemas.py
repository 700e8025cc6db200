"""A JSON Schema is held as it says, or refused by the place of what is not held."""

import json
import re
import time

import jsonschema_specifications
import pytest

import keyword_table
from weft_server.structured_output.schema_keywords import KEYWORDS, Treated
from weft_server.structured_output.schema_patterns import BUILT_IN, EXPRESSIONS
from weft_server.structured_output.schema_text import Unheld
from weft_server.structured_output.schemas import MAX_SCHEMAS, matcher_schema

VOCABULARIES = "core", "applicator", "unevaluated", "validation", "format-annotation", "content", "meta-data"
# Of older drafts. What is in the table beside these is of 2020-12.
OLDER = {"definitions", "dependencies", "additionalItems", "$recursiveRef", "$recursiveAnchor"}
# A use of each refused keyword that says something about an answer, and one that says nothing.
REFUSED = {
    "$dynamicRef": ('{"$dynamicRef": "#x"}', None),
    "$recursiveRef": ('{"$recursiveRef": "#"}', None),
    "not": ('{"not": {"type": "null"}}', None),
    "if": ('{"if": {}, "then": {}}', '{"if": {}}'),
    "then": ('{"then": {}, "if": {}}', '{"then": false}'),
    "else": ('{"else": {}, "if": {}}', '{"else": false}'),
    "dependentSchemas": ('{"dependentSchemas": {"a": false}}', '{"dependentSchemas": {}}'),
    "dependentRequired": ('{"dependentRequired": {"a": ["b"]}}', '{"dependentRequired": {}}'),
    "dependencies": ('{"dependencies": {"a": ["b"]}}', '{"dependencies": {}}'),
    "contains": ('{"contains": {}}', '{"contains": {}, "minContains": 0}'),
    "minContains": ('{"minContains": 2, "contains": {}}', '{"minContains": 2}'),
    "maxContains": ('{"maxContains": 2, "contains": {}}', '{"maxContains": 2}'),
    "propertyNames": ('{"propertyNames": {"maxLength": 3}}', '{"propertyNames": {"type": "string"}}'),
    "uniqueItems": ('{"uniqueItems": true}', '{"uniqueItems": false}'),
}
# Which schemas are refused, and the words.
WORDS = {
    '{"items": {"const": 9007199254740993}}': "const at /items: the number 9007199254740993 is not held",
    '{"enum": ["a", {"a~/b": [9007199254740992]}]}': "enum: the number 9007199254740992 is not held, as it is beyond",
    '{"minimum": -9223372036854775808}': "minimum: the number -9223372036854775808 is not held",
    '{"maximum": 1e300}': "maximum: the number 1E+300 is not held, as it is beyond",
    '{"const": 0.1000000000000000055}': "const: the number 0.1000000000000000055 is not held, as it has more digits",
    f'{{"const": {"1" * 40}}}': f"const: the number {'1' * 40} is not held",
    f'{{"const": {"1" * 41}}}': f"const: the number {'1' * 40}... is not held",
    '{"const": 1e-999}': "const: the number 1E-999 is not held, as it has more digits",
    '{"multipleOf": 0.07}': "multipleOf: steps of 0.07 are not held",
    '{"multipleOf": 0}': "multipleOf: 0 is not above 0",
    '{"multipleOf": 4294967296}': "multipleOf: steps of 4294967296 are not held",
    '{"allOf": [{"multipleOf": 65537}, {"multipleOf": 65539}]}': "multipleOf: the product of all of them",
    '{"exclusiveMinimum": 0, "maximum": 0.5}': "exclusiveMinimum: a whole one is not held with a maximum less than 1",
    '{"exclusiveMaximum": 2, "minimum": 1.5}': "exclusiveMaximum: a whole one is not held with a minimum less than 1",
    '{"allOf": [{"exclusiveMinimum": 0}, {"exclusiveMaximum": 0.5}]}': "exclusiveMinimum: a whole one is not held",
    '{"minProperties": 2, "patternProperties": {"": {}}, "additionalProperties": false}': "minProperties: it is not",
    '{"$ref": "#/$defs/a", "$defs": {}}': "$ref: nothing is at '/$defs/a'",
    '{"$ref": "#a"}': "$ref: there is no anchor 'a'",
    '{"$ref": "other.json"}': "$ref: 'other.json' is not within the schema",
    '{"items": {"$id": "x", "not": {}, "items": {"$ref": "#"}}}': "not at /items is not held",
    '{"items": {"$id": "x", "items": {"$ref": "#"}}}': "$ref at /items/items: it is not held below an $id",
    '{"items": {"$ref": "#y"}, "$defs": {"a": {"$anchor": "y", "not": {}}}}': "not at /$defs/a",
    '{"$schema": "http://json-schema.org/draft-03/schema#"}': "$schema: it is none of 2020-12,",
    '{"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{}]}': "prefixItems: it is a keyword of",
    '{"prefixItems": [{}], "items": [{}]}': "prefixItems: it is not held beside a list of items",
    '{"unevaluatedProperties": false, "anyOf": [{}]}': "unevaluatedProperties: it is not held beside a schema",
    '{"properties": {"a/b": {"format": "iri"}}}': "format at /properties/a~1b: 'iri' is not held, but date,",
    '{"pattern": "(?=a)"}': "pattern: look-around is not held",
    '{"pattern": "(?<!a)"}': "pattern: look-around is not held",
    '{"pattern": "(?i)a"}': "pattern: (?i is not held",
    '{"pattern": "(?P<x>a)"}': "pattern: (?P is not held",
    '{"pattern": "\\\\bword"}': "pattern: \\b is not held",
    '{"pattern": "(a)\\\\1"}': "pattern: \\1 is not held",
    '{"pattern": "a{,3}"}': "pattern: a brace that counts nothing",
    '{"pattern": "[a--b]"}': "pattern: -- in a class is not held",
    '{"patternProperties": {"[]": {}}}': "patternProperties: an empty class",
    '{"patternProperties": {"\\\\<": {}, "<": {}}}': "patternProperties: two patterns are the same",
    '{"const": "\\u0000"}': "const: a control character that JSON has no short escape for is not held",
    '{"const": "\\ud800"}': "it has half of a surrogate pair",
    '{"type": "object", "type": "null"}': "an object has the name 'type' twice",
    '{"type": "strin"}': "type: 'strin' is no type of JSON Schema",
    '{"items": 3}': "there is no schema at /items",
    '{"minLength": 1.5}': "minLength: it is no whole number from 0",
    '{"minItems": -1}': "minItems: it is no whole number from 0",
    '{"enum": 3}': "enum: it is no list",
    '{"required": "a"}': "required: it is no list of names",
    '{"required": [1]}': "required: it is no list of names",
    '{"pattern": 1}': "pattern: it is no text",
    '{"minimum": "1"}': "minimum: it is no number",
    '{"minimum": NaN}': "it is no JSON: NaN is no number",
    '{"minimum": 1e99999999999999999999}': "it is no JSON: a number's exponent is too large",
    "false": "no text fits it",
    "{": "it is no JSON: ",
    "[" * 9999: "it is nested too deeply",
    '{"items":' * 900 + "{}" + "}" * 900: "it is nested too deeply",
    '{"x-guidance": {}}': "x-guidance is not taken",
}
# Schemas that mean the same, by their keywords alone.
SAME = [
    (True, {}),
    ({"minLength": 2.0, "minItems": 0.0}, {"minItems": 0, "minLength": 2}),
    ({"maxItems": 2**31}, {}),
    ({"items": [{"type": "null"}], "additionalItems": False}, {"prefixItems": [{"type": "null"}], "items": False}),
    ({"items": {"type": "null"}, "additionalItems": False}, {"items": {"type": "null"}}),
    ({"minimum": 5, "exclusiveMinimum": True}, {"minimum": 5, "exclusiveMinimum": 5}),
    ({"minimum": 5, "exclusiveMinimum": False}, {"minimum": 5}),
    (
        {"type": "integer", "exclusiveMinimum": 0, "maximum": 0.5},
        {"maximum": 0.5, "type": "integer", "exclusiveMinimum": 0},
    ),
    ({"unevaluatedProperties": False}, {"additionalProperties": False}),
    ({"unevaluatedItems": False, "prefixItems": [{}]}, {"items": False, "prefixItems": [{}]}),
    ({"type": "integer", "format": "int64"}, {"type": "integer"}),
    ({"type": ["null", "string"], "format": "uuid", "title": "x"}, {"type": ["null", "string"], "format": "uuid"}),
    ({"type": ["integer", "null"], "format": "int64"}, {"type": ["integer", "null"]}),
    ({"type": "null", "title": "x", "default": 2**64, "deprecated": True, "nullable": True}, {"type": "null"}),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://x.y/z", "$comment": "c"}, {}),
]


def made(text):
    """What a matcher is told of a schema, without the options of ours."""
    schema = json.loads(matcher_schema(text))
    return {word: value for word, value in schema.items() if word not in ("x-guidance", "$defs", "$comment")}


def test_the_table_has_every_keyword_of_2020_12():
    """Those of the metaschemas that JSON Schema publishes, and a few of older drafts."""
    published = set()
    for name in VOCABULARIES:
        uri = f"https://json-schema.org/draft/2020-12/meta/{name}"
        published |= set(jsonschema_specifications.REGISTRY.contents(uri)["properties"])
    assert published | OLDER == set(KEYWORDS)


def test_the_manual_has_the_same_table():
    """`python tests/keyword_table.py` makes that of server/README.md of the code's."""
    assert keyword_table.page() == keyword_table.README.read_text("utf-8")


def test_the_manual_names_every_format():
    """So does the table's own row."""
    assert sorted((*BUILT_IN, *EXPRESSIONS)) == sorted(re.findall(r"`([^`]+)`", KEYWORDS["format"].note))


@pytest.mark.parametrize("word", [word for word, keyword in KEYWORDS.items() if keyword.treated is Treated.REFUSED])
def test_a_keyword_that_is_not_held_is_refused_by_its_place(word):
    """Also deep inside, and behind a reference. Where it says nothing about an answer, it is taken."""
    asked, harmless = REFUSED[word]
    with pytest.raises(Unheld, match=rf"^{re.escape(word)} is not held"):
        matcher_schema(asked)
    with pytest.raises(Unheld, match=rf"^{re.escape(word)} at /properties/a~1b/anyOf/0 is not held"):
        matcher_schema('{"properties": {"a/b": {"anyOf": [ASKED]}}}'.replace("ASKED", asked))
    with pytest.raises(Unheld, match=rf"^{re.escape(word)} at /somewhere/0 is not held"):
        matcher_schema('{"items": {"$ref": "#/somewhere/0"}, "somewhere": [ASKED]}'.replace("ASKED", asked))
    if harmless:
        assert {} == made(harmless)


@pytest.mark.parametrize("text", WORDS)
def test_what_is_not_held_is_said(text):
    """What it is, and where, in the words of the caller's schema."""
    with pytest.raises(Unheld) as caught:
        matcher_schema(text)
    assert str(caught.value).startswith(WORDS[text])


@pytest.mark.parametrize("index", range(len(SAME)))
def test_schemas_that_mean_the_same(index):
    """Older drafts, keywords that say nothing, and numbers in another spelling."""
    one, other = SAME[index]
    assert made(json.dumps(other)) == made(json.dumps(one))


def test_what_nobody_refers_to_is_not_read():
    """A definition may be of another tool's making."""
    assert {"type": "null"} == made('{"type": "null", "$defs": {"a": {"not": {}}}, "x-mine": {"not": {}}}')


def test_an_index_has_one_spelling():
    """Another one would be another copy of what it points to (RFC 6901)."""
    with pytest.raises(Unheld, match="nothing is at '/anyOf/00'"):
        matcher_schema('{"anyOf": [{"$ref": "#/anyOf/00"}, {"type": "null"}]}')


def test_what_references_copy_is_bounded():
    """Each place that is referred to is written once more, with all that is in it."""
    inner = {"properties": {f"p{number}": {} for number in range(300)}}
    for depth in range(60):
        inner = {"$anchor": f"a{depth}", "items": inner}
    nested = {"properties": {"x": inner}, "anyOf": [{"$ref": f"#a{depth}"} for depth in range(60)]}
    with pytest.raises(Unheld, match="it has over 10,000 schemas, with a copy for each place that a reference names"):
        matcher_schema(json.dumps(nested))


def test_as_many_schemas_as_are_allowed_are_taken():
    """The bound itself, with the schema at the top."""
    for number in (MAX_SCHEMAS - 1, MAX_SCHEMAS):
        text = json.dumps({"anyOf": [{}] * number})
        assert (number < MAX_SCHEMAS) == is_taken(text)


def test_numbers_of_different_options_are_not_of_one_number():
    """Alone, an anyOf merges nothing: an answer is held to one of its options. Beside another keyword it does."""
    apart = {"anyOf": [{"exclusiveMinimum": 0}, {"maximum": 0.5}]}
    assert is_taken(json.dumps(apart))
    assert is_taken(json.dumps({"type": "number"} | apart))
    assert not is_taken(json.dumps({"multipleOf": 1} | apart))
    assert not is_taken(json.dumps({"allOf": [{}]} | apart))


def test_as_many_names_as_cannot_be_one_twice_may_be_asked_for():
    """One more than are required. Where no others may come, a matcher counts them right."""
    for wanted, required, others, expected in (
        (1, [], True, True),
        (2, [], True, False),
        (2, ["a"], True, True),
        (3, ["a"], True, False),
        (2, [], False, True),
    ):
        schema = {"properties": {"a": {}, "b": {}}, "required": required, "additionalProperties": others}
        assert expected == is_taken(json.dumps(schema | {"minProperties": wanted})), (wanted, required, others)


def is_taken(text):
    """Whether a schema is not refused."""
    try:
        matcher_schema(text)
    except Unheld:
        return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        "{" + ",".join(f'"{name:04x}":1' for name in range(9000)) + ',"0000":1}',
        json.dumps({"allOf": [{"multipleOf": 3e-307}, *({"multipleOf": number} for number in range(1, 3000))]}),
    ],
)
def test_a_refusal_takes_little(text):
    """Names that come twice, and factors of one multiple: seconds of a quadratic look would be a caller's to spend."""
    began = time.process_time()
    with pytest.raises(Unheld, match=r"has the name '0000' twice|the product of all of them"):
        matcher_schema(text)
    assert time.process_time() - began < 0.5
