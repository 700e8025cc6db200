"""Reads JSON Schemas: what an answer would not be held to is refused, by its place, before a matcher sees it.

A matcher takes more than it follows. For example, it makes 9007199254740992 of the constant 9007199254740993. So it is
given a schema of our own, of 2020-12, that has nothing but what it follows.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from weft_server.structured_output.schema_keywords import IN_PLACE, KEYWORDS, Draft, Treated, changes_nothing
from weft_server.structured_output.schema_numbers import NumberBounds
from weft_server.structured_output.schema_patterns import EXPRESSIONS, of_matcher
from weft_server.structured_output.schema_text import References, Unheld, at, below, schemas_in
from weft_server.structured_output.schema_values import VALUES, have_none_in_common, must

if TYPE_CHECKING:
    from collections.abc import Callable

# What each reference points to is written once more, and that may be what holds others.
MAX_SCHEMAS = 10_000
# Without a bound on white space, a model that likes it may never go on. And an answer writes no \u: "r\u006fle" would
# be another way to spell the name "role", and would pass for another name.
_OPTIONS = {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,64}", "json_allowed_escapes": 'nrbtf\\"'}


def matcher_schema(text: str) -> str:
    """Return the JSON text of a schema that a matcher follows, on one line.

    Raises:
        Unheld: an answer would not be held to the caller's schema, or it is none.
    """
    try:
        # Numbers as decimals, so that none becomes another one.
        schema = json.loads(
            text, parse_int=Decimal, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_object
        )
        made = _Reading(schema).written()
        json.dumps(made, ensure_ascii=False).encode()
        return json.dumps(made)
    except InvalidOperation as error:
        raise Unheld("it is no JSON: a number's exponent is too large") from error
    except json.JSONDecodeError as error:
        raise Unheld(f"it is no JSON: {error}") from error
    except UnicodeEncodeError as error:
        raise Unheld("it has half of a surrogate pair, which is no character") from error
    except RecursionError as error:
        raise Unheld("it is nested too deeply") from error


def overlapping(matcher_schema: str) -> str:
    """Return why a matcher refused a `oneOf` of a schema that was made for it, and where it may be."""
    schema = json.loads(matcher_schema)
    pointers: dict[str, str] = schema.pop("$comment")
    definitions = schema.pop("$defs").items()
    waiting: list[tuple[str, Any]] = [("", schema), *((pointers[name], each) for name, each in definitions)]
    found = []
    while waiting:
        pointer, each = waiting.pop()
        if isinstance(each, dict):
            found += [at(pointer)] if "oneOf" in each else []
            waiting.extend(schemas_in(each, pointer))
    where = " or".join(sorted(found))
    return f"oneOf{where}: its options may overlap. Take anyOf, if an answer may fit several"


@dataclass
class _Schema:
    """A schema, where it is, and what has been made of it."""

    said: dict[str, Any]
    pointer: str
    is_embedded: bool
    made: dict[str, Any] = field(default_factory=dict)
    # Of formats. A matcher is told of them at the end: the schema may have a pattern too.
    patterns: list[str] = field(default_factory=list)


class _Reading:
    """One schema on its way to a matcher."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._draft = Draft(root)
        self._references = References(root, self._draft)
        # What references point to, and the names that it has in what is made: of the pointers.
        self._defs: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        self._bounds = NumberBounds()
        self._count = 0

    def written(self) -> dict[str, Any]:
        """Return the schema for a matcher."""
        if isinstance(self._root, dict) and "x-guidance" in self._root:
            raise Unheld("x-guidance is not taken")
        schema = self._made(self._root, "", is_embedded=False)
        self._bounds.check_together()
        if schema is False:
            raise Unheld("no text fits it")
        return {"x-guidance": _OPTIONS, **({} if schema is True else schema), **self._definitions()}

    def _definitions(self) -> dict[str, Any]:
        """What references point to, and a comment that says where the caller has it."""
        return {"$defs": self._defs, "$comment": {name: pointer for pointer, name in self._names.items()}}

    def _made(self, said: Any, pointer: str, *, is_embedded: bool) -> Any:
        """Return what a matcher is told of a schema."""
        if isinstance(said, bool):
            return said
        self._count += 1
        if self._count > MAX_SCHEMAS:
            raise Unheld(f"it has over {MAX_SCHEMAS:,} schemas, with a copy for each place that a reference names")
        if not isinstance(said, dict):
            raise Unheld(f"there is no schema{at(pointer)}, which is an object, true or false")
        schema = _Schema(said, pointer, is_embedded or (bool(pointer) and self._draft.is_resource(said)))
        for word, value in said.items():
            treated = KEYWORDS[word].treated if word in KEYWORDS else Treated.IGNORED
            if treated is Treated.IGNORED or changes_nothing(word, said, self._draft):
                continue
            if treated is Treated.REFUSED:
                raise Unheld(f"{word}{at(pointer)} is not held. Leave it out, and check the answer for it")
            try:
                self._keyword(schema, word, value)
            except Unheld:
                raise
            except ValueError as error:
                raise Unheld(f"{word}{at(pointer)}: {error}") from error
        self._end(schema)
        return schema.made

    def _keyword(self, schema: _Schema, word: str, value: Any) -> None:
        if word in _INSIDE:
            _INSIDE[word](self, schema, word, value)
        elif word in VALUES:
            for told in VALUES[word](value, schema.said):
                if word == "format" and told in EXPRESSIONS:
                    schema.patterns.append(EXPRESSIONS[told])
                else:
                    schema.made[word] = told

    def _end(self, schema: _Schema) -> None:
        """Tell of formats, and check what several keywords say together."""
        made = schema.made
        if have_none_in_common(made.get("oneOf", ())):
            # Then it is anyOf, which may stand beside it. A matcher would compare nothing but texts.
            made["allOf"] = [*made.get("allOf", ()), {"anyOf": made.pop("oneOf")}]
        for pattern in schema.patterns:
            if "pattern" in made:
                made["allOf"] = [*made.get("allOf", ()), {"pattern": pattern}]
            else:
                made["pattern"] = pattern
        applied = sum(len(made[word]) if word == "allOf" else 1 for word in IN_PLACE if word in made)
        if applied > 1 or (applied and not made.keys() <= {*IN_PLACE, "type"}):
            self._bounds.merges = True
        self._bounds.add(made, schema.pointer)
        # A matcher counts names, and one that comes twice counts twice.
        is_open = made.get("additionalProperties") is not False or "patternProperties" in made
        if is_open and made.get("minProperties", 0) > len(set(made.get("required", ()))) + 1:
            why = "it is not held, as a name may come twice. Say which are required, or that there are no others"
            raise Unheld(f"minProperties{at(schema.pointer)}: {why}")

    def one(self, schema: _Schema, word: str, value: Any) -> None:
        schema.made[word] = self._inside(schema, value, word)

    def several(self, schema: _Schema, word: str, value: Any) -> None:
        must(isinstance(value, list) and value, "it is no list of schemas")
        schema.made[word] = [self._inside(schema, each, word, index) for index, each in enumerate(value)]

    def named(self, schema: _Schema, word: str, value: Any) -> None:
        must(isinstance(value, dict), "it is no object")
        schema.made[word] = {name: self._inside(schema, each, word, name) for name, each in value.items()}

    def patterned(self, schema: _Schema, word: str, value: Any) -> None:
        self.named(schema, word, value)
        schemas = schema.made[word]
        schema.made[word] = {of_matcher(pattern): each for pattern, each in schemas.items()}
        if len(schema.made[word]) < len(schemas):
            raise ValueError("two patterns are the same")

    def items(self, schema: _Schema, word: str, value: Any) -> None:
        if isinstance(value, list):
            # Before 2020-12. With an empty list, there is no first item.
            schema.made["prefixItems"] = [self._inside(schema, each, word, i) for i, each in enumerate(value)]
        else:
            self.one(schema, word, value)

    def prefix_items(self, schema: _Schema, word: str, value: Any) -> None:
        if not self._draft.is_newest:
            raise ValueError("it is a keyword of 2020-12, and $schema names an older draft")
        is_older = isinstance(schema.said.get("items"), list)
        must(not is_older, "it is not held beside a list of items, which older drafts have instead")
        self.several(schema, word, value)

    def additional_items(self, schema: _Schema, word: str, value: Any) -> None:
        if isinstance(schema.said.get("items"), list):
            schema.made["items"] = self._inside(schema, value, word)

    def unevaluated(self, schema: _Schema, word: str, value: Any) -> None:
        """What no other schema looks at is what no keyword beside it looks at, where no other schema applies."""
        same = "items" if word == "unevaluatedItems" else "additionalProperties"
        if value is not True and not schema.said.keys().isdisjoint(IN_PLACE):
            raise ValueError("it is not held beside a schema that applies to the same value. Take " + same)
        if same not in schema.said:
            schema.made[same] = self._inside(schema, value, word)

    def reference(self, schema: _Schema, word: str, value: Any) -> None:
        if schema.is_embedded:
            raise ValueError("it is not held below an $id that is not at the top")
        pointer = self._references.pointer_of(value)
        if pointer not in self._names:
            said, is_embedded = self._references.at(pointer)
            # Before it is read, since it may point to itself.
            name = self._names[pointer] = str(len(self._names))
            self._defs[name] = self._made(said, pointer, is_embedded=is_embedded)
        schema.made[word] = f"#/$defs/{self._names[pointer]}"

    def draft(self, _: _Schema, word: str, value: Any) -> None:  # noqa: ARG002 - as its neighbours have it
        """A matcher is told none: what is made is of 2020-12."""
        self._draft.check(value)

    def _inside(self, schema: _Schema, value: Any, *words: str | int) -> Any:
        return self._made(value, below(schema.pointer, *words), is_embedded=schema.is_embedded)


# Keywords that have schemas inside, or that the rest of the schema counts for.
_INSIDE: dict[str, Callable[[_Reading, _Schema, str, Any], None]] = {
    "$schema": _Reading.draft,
    "allOf": _Reading.several,
    "anyOf": _Reading.several,
    "oneOf": _Reading.several,
    "properties": _Reading.named,
    "patternProperties": _Reading.patterned,
    "additionalProperties": _Reading.one,
    "items": _Reading.items,
    "prefixItems": _Reading.prefix_items,
    "additionalItems": _Reading.additional_items,
    "unevaluatedItems": _Reading.unevaluated,
    "unevaluatedProperties": _Reading.unevaluated,
    "$ref": _Reading.reference,
}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a schema. What a name that comes twice means is up to its reader."""
    made = dict(pairs)
    if len(made) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise Unheld(f"an object has the name {next(name for name in counts if counts[name] > 1)!r} twice")
    return made


def _no_constant(name: str) -> None:
    raise Unheld(f"it is no JSON: {name} is no number")
