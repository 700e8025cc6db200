"""Which draft of JSON Schema a schema is of: `$schema` at the top says it, and all that is inside is of the same."""

import json

import pytest

from weft_server.structured_output.schema_text import Unheld
from weft_server.structured_output.schemas import matcher_schema

NEWEST = "https://json-schema.org/draft/2020-12/schema"
OLD = "http://json-schema.org/draft-07/schema#"
OLDEST = "http://json-schema.org/draft-04/schema#"
OTHER = "it names another draft than the top of the schema, and a schema is read as one draft"
# A schema, and how it is refused.
REFUSED = [
    ({"items": {"$schema": OLD}}, f"$schema at /items: {OTHER}"),
    ({"$schema": OLD, "items": {"$schema": NEWEST}}, f"$schema at /items: {OTHER}"),
    ({"items": {"$id": "x", "$schema": OLD, "prefixItems": [{}]}}, f"$schema at /items: {OTHER}"),
    ({"items": {"$schema": 7}}, "$schema at /items: it is none of 2020-12"),
    # What a reference points to is looked at alone: the draft of what is around it counts too.
    (
        {"items": {"$ref": "#/$defs/a/$defs/b"}, "$defs": {"a": {"$schema": OLD, "$defs": {"b": {}}}}},
        f"$ref at /items: at /$defs/a, {OTHER}",
    ),
    ({"items": {"$ref": "#b"}, "$defs": {"a": {"$schema": OLD, "$defs": {"b": {"$anchor": "b"}}}}},
     f"$ref at /items: at /$defs/a, {OTHER}"),
    # Drafts before 2019-09 know no minContains, which would make nothing of contains.
    ({"$schema": OLD, "contains": {"type": "null"}, "minContains": 0}, "contains is not held"),
    # Draft 4 calls it `id`.
    ({"$schema": OLDEST, "items": {"id": "x", "items": {"$ref": "#"}}}, "$ref at /items/items: it is not held below"),
]  # fmt: skip
TAKEN = [
    {"items": {"$schema": NEWEST}},
    {"items": {"$id": "x", "$schema": NEWEST, "prefixItems": [{}]}},
    {"$schema": OLD, "items": {"$schema": OLD.rstrip("#")}},
    # A property may have this name, and what nobody refers to is not read.
    {"properties": {"$schema": {"type": "string"}}, "$defs": {"a": {"$schema": OLD}}},
    {"items": {"$ref": "#/properties/$schema"}, "properties": {"$schema": {"type": "string"}}},
    {"contains": {"type": "null"}, "minContains": 0},
    {"items": {"id": "x", "items": {"$ref": "#"}}},
]


@pytest.mark.parametrize(("schema", "why"), REFUSED)
def test_a_schema_is_of_one_draft(schema, why):
    """Another one below the top would change what keywords mean: it is refused by its place."""
    with pytest.raises(Unheld) as caught:
        matcher_schema(json.dumps(schema))
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize("schema", TAKEN)
def test_the_same_draft_may_be_said_again(schema):
    """It changes nothing."""
    assert "$schema" not in json.loads(matcher_schema(json.dumps(schema)))


@pytest.mark.parametrize("schema", [{"contains": {}, "minContains": False}, {"propertyNames": 1}])
def test_what_python_calls_equal_is_no_other_value(schema):
    """To Python, false is 0 and true is 1. A schema that says one for the other is refused."""
    with pytest.raises(Unheld, match="is not held"):
        matcher_schema(json.dumps(schema))
