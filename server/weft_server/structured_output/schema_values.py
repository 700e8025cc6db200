"""What the keywords of a JSON Schema say that have no schema inside, as a matcher is told it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from weft_server.structured_output.schema_numbers import exact, multiple
from weft_server.structured_output.schema_patterns import BUILT_IN, EXPRESSIONS, of_matcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Value = Callable[[Any, dict[str, Any]], tuple[Any, ...]]

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
# Nothing is as long as this, so a maximum of it changes nothing.
_ENDLESS = 2**31
# Characters that JSON writes as \u alone, which a matcher is kept from writing.
_UNWRITTEN = frozenset(map(chr, [*range(0x20), 0x7F])) - frozenset("\b\f\n\r\t")


def must(holds: object, why: str) -> None:
    """Raise a ValueError, unless something holds."""
    if not holds:
        raise ValueError(why)


def constant(value: Any) -> Any:
    """Return a value of a JSON document, its numbers exact.

    Raises:
        ValueError: it has a number or a character that an answer could not have.
    """
    if isinstance(value, Decimal):
        return exact(value)
    if isinstance(value, str) and not _UNWRITTEN.isdisjoint(value):
        raise ValueError("a control character that JSON has no short escape for is not held")
    if isinstance(value, list):
        return [constant(each) for each in value]
    if isinstance(value, dict):
        return {name: constant(each) for name, each in value.items()}
    return value


def have_none_in_common(options: Sequence[Any]) -> bool:
    """Whether each of some schemas is of constants, as `constant` gives them, and no two have one in common."""
    listed: list[list[Any]] = []
    for option in options:
        if not isinstance(option, dict) or option.keys().isdisjoint(("const", "enum")):
            return False
        listed.append([option["const"]] if "const" in option else option["enum"])
    # 1.0 has become 1, and true is no number here. An object is the same in any order.
    texts = [{json.dumps(value, sort_keys=True) for value in values} for values in listed]
    return bool(texts) and sum(map(len, texts)) == len(set().union(*texts))


def _type(value: Any, _: dict[str, Any]) -> tuple[Any]:
    for each in value if isinstance(value, list) else [value]:
        if each not in _TYPES:
            raise ValueError(f"{each!r} is no type of JSON Schema")
    return (value,)


def _enum(value: Any, _: dict[str, Any]) -> tuple[Any]:
    must(isinstance(value, list), "it is no list")
    return (constant(value),)


def _bound(value: Any, _: dict[str, Any]) -> tuple[int | float]:
    return (exact(_number(value)),)


def _excluding(other: str) -> _Value:
    def excluding(value: Any, schema: dict[str, Any]) -> tuple[int | float, ...]:
        if isinstance(value, bool):
            # Draft 4: whether the other keyword's number is excluded too.
            return (exact(_number(schema[other])),) if value and other in schema else ()
        return (exact(_number(value)),)

    return excluding


def _least(value: Any, _: dict[str, Any]) -> tuple[int]:
    number = exact(_number(value))
    if not isinstance(number, int) or number < 0:
        raise ValueError("it is no whole number from 0")
    return (number,)


def _most(value: Any, schema: dict[str, Any]) -> tuple[int, ...]:
    (number,) = _least(value, schema)
    return (number,) if number < _ENDLESS else ()


def _names(value: Any, _: dict[str, Any]) -> tuple[list[str]]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("it is no list of names")
    return (value,)


def _pattern(value: Any, _: dict[str, Any]) -> tuple[str]:
    must(isinstance(value, str), "it is no text")
    return (of_matcher(value),)


def _format(value: Any, schema: dict[str, Any]) -> tuple[str, ...]:
    types = schema.get("type", "string")
    if types != "string" and not (isinstance(types, list) and "string" in types):
        return ()
    if not isinstance(value, str) or value not in {*BUILT_IN, *EXPRESSIONS}:
        raise ValueError(f"{value!r} is not held, but {', '.join(sorted((*BUILT_IN, *EXPRESSIONS)))}")
    return (value,)


def _number(value: Any) -> Decimal:
    must(isinstance(value, Decimal), "it is no number")
    number: Decimal = value
    return number


# Each takes the keyword's value and the schema around it. It returns what a matcher is told, if it is told anything.
VALUES: dict[str, _Value] = {
    "type": _type,
    "enum": _enum,
    "const": lambda value, _: (constant(value),),
    "minimum": _bound,
    "maximum": _bound,
    "exclusiveMinimum": _excluding("minimum"),
    "exclusiveMaximum": _excluding("maximum"),
    "multipleOf": lambda value, _: (multiple(_number(value)),),
    "minLength": _least,
    "maxLength": _most,
    "minItems": _least,
    "maxItems": _most,
    "minProperties": _least,
    "maxProperties": _most,
    "pattern": _pattern,
    "format": _format,
    "required": _names,
}
