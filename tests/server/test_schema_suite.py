"""The official test suite of JSON Schema 2020-12: each schema is held or refused, and nothing wrong passes.

The suite is https://github.com/json-schema-org/JSON-Schema-Test-Suite at commit 44401e0c, of 2026-08-22, under the
licence beside it: all that is required, and what is optional, but for the formats that are refused.
"""

import gzip
import itertools
import json
from pathlib import Path

import pytest

from json_followed import following
from weft_server.errors import InvalidRequest

SUITE = json.loads(gzip.decompress((Path(__file__).parent / "json_schema_test_suite.json.gz").read_bytes()))
# How many schemas of a file are held, how many are refused, and how many fitting values no answer can be.
EXPECTED = {
    "additionalProperties": (7, 2, 0),
    "allOf": (10, 2, 0),
    "anchor": (1, 3, 0),
    "anyOf": (7, 1, 0),
    "boolean_schema": (1, 1, 0),
    "const": (15, 2, 0),
    "contains": (0, 7, 0),
    "content": (4, 0, 0),
    "default": (3, 0, 0),
    "defs": (0, 1, 0),
    "dependentRequired": (0, 4, 0),
    "dependentSchemas": (0, 4, 0),
    "dynamicRef": (1, 20, 0),
    "enum": (13, 2, 2),
    "exclusiveMaximum": (1, 0, 0),
    "exclusiveMinimum": (1, 0, 0),
    "format": (10, 9, 10),
    "if-then-else": (4, 8, 0),
    "infinite-loop-detection": (1, 0, 0),
    "items": (10, 0, 0),
    "maxContains": (1, 4, 0),
    "maxItems": (2, 0, 0),
    "maxLength": (2, 0, 0),
    "maxProperties": (3, 0, 0),
    "maximum": (2, 0, 0),
    "minContains": (2, 6, 0),
    "minItems": (2, 0, 0),
    "minLength": (2, 0, 0),
    "minProperties": (2, 0, 0),
    "minimum": (2, 0, 0),
    "multipleOf": (4, 1, 0),
    "not": (0, 9, 0),
    "oneOf": (2, 9, 0),
    "optional/anchor": (1, 0, 0),
    "optional/bignum": (3, 4, 0),
    "optional/cross-draft": (0, 1, 0),
    "optional/dependencies-compatibility": (0, 7, 0),
    "optional/dynamicRef": (0, 1, 0),
    "optional/ecmascript-regex": (18, 2, 2),
    "optional/float-overflow": (1, 0, 1),
    "optional/format-assertion": (0, 2, 0),
    "optional/format/date": (1, 0, 0),
    "optional/format/date-time": (1, 0, 3),
    "optional/format/duration": (1, 0, 0),
    "optional/format/email": (1, 0, 5),
    "optional/format/hostname": (2, 0, 16),
    "optional/format/ipv4": (1, 0, 0),
    "optional/format/ipv6": (1, 0, 4),
    "optional/format/time": (1, 0, 6),
    "optional/format/uri": (1, 0, 0),
    "optional/format/uuid": (1, 0, 0),
    "optional/id": (0, 1, 0),
    "optional/no-schema": (1, 0, 0),
    "optional/non-bmp-regex": (2, 0, 0),
    "optional/refOfUnknownKeyword": (5, 0, 0),
    "optional/unknownKeyword": (0, 1, 0),
    "pattern": (3, 0, 0),
    "patternProperties": (3, 3, 0),
    "prefixItems": (4, 0, 0),
    "properties": (6, 0, 0),
    "propertyNames": (1, 5, 0),
    "ref": (20, 16, 0),
    "refRemote": (0, 15, 0),
    "required": (5, 0, 0),
    "type": (11, 0, 0),
    "unevaluatedItems": (14, 15, 2),
    "unevaluatedProperties": (23, 21, 1),
    "uniqueItems": (3, 3, 0),
    "vocabulary": (0, 2, 0),
}


@pytest.fixture(scope="module")
def follows(tmp_path_factory):
    """Whether a text is a whole answer under a constraint of a schema. None: the schema is refused."""
    with following(tmp_path_factory.mktemp("suite")) as held:

        def built(schema):
            try:
                return held(json.dumps(schema))
            except InvalidRequest:
                return None

        yield built


def spellings(value):
    """A value as JSON: with escapes and without, its properties in some orders, a whole number without a point."""
    values = [value]
    if isinstance(value, dict):
        values = [dict(items) for items in itertools.islice(itertools.permutations(value.items()), 24)]
    elif isinstance(value, float) and value.is_integer() and abs(value) < 1e300:
        values = [value, int(value)]
    return {
        json.dumps(each, ensure_ascii=escapes, separators=(",", ":")) for each in values for escapes in (True, False)
    }


@pytest.mark.parametrize("name", SUITE)
def test_what_the_official_suite_calls_wrong_never_passes(follows, name):
    """No spelling of a wrong value is a whole answer; which schemas are refused, and what is narrower, is known."""
    held = refused = narrower = 0
    for group in SUITE[name]:
        takes = follows(group["schema"])
        held, refused = held + (takes is not None), refused + (takes is None)
        for case in group["tests"] if takes else ():
            passes = any(map(takes, spellings(case["data"])))
            assert case["valid"] or not passes, (group["description"], case)
            narrower += case["valid"] and not passes
    assert EXPECTED[name] == (held, refused, narrower)
