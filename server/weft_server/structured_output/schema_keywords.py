"""Every keyword of JSON Schema, whether an answer is held to it, and what drafts say differently."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Treated(Enum):
    """What is done with a keyword. What it stands for is the word in the manual's table."""

    HELD = "held"
    PARTLY = "held, or refused"
    REFUSED = "refused"
    IGNORED = "ignored"


class Keyword(NamedTuple):
    """How a keyword is treated, and what there is to say of it."""

    treated: Treated
    note: str = ""


HELD, PARTLY, REFUSED, IGNORED = Treated
_ANY_NAME: tuple[dict[str, str], ...] = ({}, {"type": "string"})
_SAYS_NOTHING = "It says nothing about an answer."

# `python tests/keyword_table.py` makes the manual's table of it. What is not here is ignored, as JSON Schema says.
KEYWORDS = {
    "$schema": Keyword(PARTLY, "2020-12, 2019-09 and drafts 7, 6, 4. Below the top, the same as there."),
    "$id": Keyword(PARTLY, "No `$ref` below one that is not at the top."),
    "$ref": Keyword(PARTLY, "Within the schema: `#`, `#/a/pointer` or `#anchor`."),
    "$anchor": Keyword(HELD),
    "$dynamicAnchor": Keyword(HELD, "As `$anchor`."),
    "$dynamicRef": Keyword(REFUSED),
    "$defs": Keyword(HELD),
    "$vocabulary": Keyword(IGNORED, _SAYS_NOTHING),
    "$comment": Keyword(IGNORED, _SAYS_NOTHING),
    "allOf": Keyword(HELD),
    "anyOf": Keyword(HELD),
    "oneOf": Keyword(
        PARTLY, "The options exclude each other by type, by constants, or by a required property of a constant text."
    ),
    "not": Keyword(REFUSED),
    "if": Keyword(REFUSED, "Unless there is neither `then` nor `else`."),
    "then": Keyword(REFUSED, "Unless there is no `if`."),
    "else": Keyword(REFUSED, "Unless there is no `if`."),
    "dependentSchemas": Keyword(REFUSED, "Unless it is empty."),
    "prefixItems": Keyword(HELD),
    "items": Keyword(HELD, "A list is read as `prefixItems`, with `additionalItems`, as in older drafts."),
    "contains": Keyword(REFUSED, "Unless `minContains` is 0, in a draft that knows it, and there is no `maxContains`."),
    "properties": Keyword(HELD, "An answer has them in this order."),
    "patternProperties": Keyword(PARTLY, "Two patterns may not match the same name."),
    "additionalProperties": Keyword(HELD, "A name may come twice. Each of its values fits."),
    "propertyNames": Keyword(REFUSED, 'Unless it is `true`, `{}` or `{"type": "string"}`.'),
    "unevaluatedItems": Keyword(PARTLY, "As `items`, where no schema beside it applies to the same value."),
    "unevaluatedProperties": Keyword(
        PARTLY, "As `additionalProperties`, where no schema beside it applies to the same value."
    ),
    "type": Keyword(HELD, "An integer has no point and no exponent."),
    "enum": Keyword(PARTLY, "Numbers as below; 1.0 is 1. No control characters but those with a short escape."),
    "const": Keyword(PARTLY, "As `enum`."),
    "multipleOf": Keyword(PARTLY, "Up to nine digits. The number then has no exponent."),
    "maximum": Keyword(PARTLY, "A number that a 64-bit float holds exactly, and less than 2^53."),
    "exclusiveMaximum": Keyword(
        PARTLY,
        "The same. A whole one needs a `minimum` that is whole, or 1 below. `true` is as in draft 4.",
    ),
    "minimum": Keyword(PARTLY, "As `maximum`."),
    "exclusiveMinimum": Keyword(
        PARTLY,
        "The same. A whole one needs a `maximum` that is whole, or 1 above. `true` is as in draft 4.",
    ),
    "maxLength": Keyword(HELD, "In code points."),
    "minLength": Keyword(HELD, "In code points."),
    "pattern": Keyword(PARTLY, "As ECMA-262 reads it with the flag u, without look-around, back-references and `\\b`."),
    "format": Keyword(
        PARTLY, "`date`, `time`, `date-time`, `duration`, `email`, `hostname`, `ipv4`, `ipv6`, `uri`, `uuid`."
    ),
    "maxItems": Keyword(HELD),
    "minItems": Keyword(HELD),
    "uniqueItems": Keyword(REFUSED, "Unless it is `false`."),
    "maxContains": Keyword(REFUSED, "Unless there is no `contains`."),
    "minContains": Keyword(REFUSED, "Unless there is no `contains`."),
    "maxProperties": Keyword(PARTLY, "All `properties` must be required, or it is 1 and there are no others."),
    "minProperties": Keyword(
        PARTLY, "As `maxProperties`. Where other names may come, at most one more than are required."
    ),
    "required": Keyword(HELD),
    "dependentRequired": Keyword(REFUSED, "Unless it is empty."),
    "contentEncoding": Keyword(IGNORED, _SAYS_NOTHING),
    "contentMediaType": Keyword(IGNORED, _SAYS_NOTHING),
    "contentSchema": Keyword(IGNORED, _SAYS_NOTHING),
    "title": Keyword(IGNORED, _SAYS_NOTHING),
    "description": Keyword(IGNORED, _SAYS_NOTHING),
    "default": Keyword(IGNORED, _SAYS_NOTHING),
    "deprecated": Keyword(IGNORED, _SAYS_NOTHING),
    "readOnly": Keyword(IGNORED, _SAYS_NOTHING),
    "writeOnly": Keyword(IGNORED, _SAYS_NOTHING),
    "examples": Keyword(IGNORED, _SAYS_NOTHING),
    "definitions": Keyword(HELD, "Of drafts before 2019-09: as `$defs`."),
    "additionalItems": Keyword(HELD, "Of drafts before 2020-12, beside a list of `items`."),
    "dependencies": Keyword(REFUSED, "Of drafts before 2019-09. Unless it is empty."),
    "$recursiveRef": Keyword(REFUSED, "Of draft 2019-09."),
    "$recursiveAnchor": Keyword(IGNORED, "Of draft 2019-09. Without `$recursiveRef` it says nothing."),
}

# Where a keyword's value is a schema, a list of schemas, or schemas by name.
ONE = ("items", "additionalItems", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames",
       "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
MAPS = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas")
# They apply other schemas to the same value.
IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf")


def changes_nothing(word: str, schema: dict[str, object], draft: Draft) -> bool:
    """Whether a schema would mean the same without a keyword that is refused elsewhere."""
    return word in _HARMLESS and _HARMLESS[word](schema, draft)


def _contains_nothing(schema: dict[str, object], draft: Draft) -> bool:
    if "contains" not in schema:
        return True
    # To Python, False is 0.
    is_none = schema.get("minContains") == 0 and schema["minContains"] is not False
    return draft.counts_contained and is_none and "maxContains" not in schema


_HARMLESS: dict[str, Callable[[dict[str, object], Draft], bool]] = {
    "uniqueItems": lambda schema, _: schema["uniqueItems"] is False,
    "contains": _contains_nothing,
    "minContains": _contains_nothing,
    "maxContains": _contains_nothing,
    "if": lambda schema, _: schema.keys().isdisjoint(("then", "else")),
    "then": lambda schema, _: "if" not in schema,
    "else": lambda schema, _: "if" not in schema,
    "dependentRequired": lambda schema, _: schema["dependentRequired"] == {},
    "dependentSchemas": lambda schema, _: schema["dependentSchemas"] == {},
    "dependencies": lambda schema, _: schema["dependencies"] == {},
    "propertyNames": lambda schema, _: schema["propertyNames"] is True or schema["propertyNames"] in _ANY_NAME,
}


_2020 = "https://json-schema.org/draft/2020-12/schema"
_2019 = "https://json-schema.org/draft/2019-09/schema"
_4 = "http://json-schema.org/draft-04/schema"
_DRAFTS = frozenset(
    (_2020, _2019, "http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema", _4)
)


class Draft:
    """The draft that a whole schema is read as: what `$schema` says at its top, or 2020-12."""

    def __init__(self, root: Any) -> None:
        said = root.get("$schema") if isinstance(root, dict) else None
        # One that is unknown is refused where keywords are read.
        self._name = said.rstrip("#") if isinstance(said, str) else _2020
        self.is_newest = self._name == _2020
        # Whether minContains and maxContains are keywords.
        self.counts_contained = self._name in (_2020, _2019)
        self._id = "id" if self._name == _4 else "$id"

    def check(self, said: object) -> None:
        """Refuse a `$schema` that says another draft, or none. Raises ValueError."""
        if not isinstance(said, str) or said.rstrip("#") not in _DRAFTS:
            raise ValueError("it is none of 2020-12, 2019-09, draft-07, draft-06 and draft-04, by their addresses")
        if said.rstrip("#") != self._name:
            raise ValueError("it names another draft than the top of the schema, and a schema is read as one draft")

    def is_resource(self, schema: Any) -> bool:
        """Whether references below a schema mean something else than above: it has an address of its own."""
        return isinstance(schema, dict) and isinstance(schema.get(self._id), str)
