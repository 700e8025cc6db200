"""Numbers that a 64-bit float holds exactly, and what several keywords or schemas say of one number."""

from __future__ import annotations

from decimal import Decimal
from math import floor
from typing import Any

from weft_server.structured_output.schema_text import Unheld, at

# Whole numbers up to here are the only ones that have a float of their own.
MOST = 2**53 - 1
# A matcher counts multiples in 32 bits.
MOST_MULTIPLE = 2**32 - 1
_MOST_CHARS = 40


def exact(value: Decimal) -> int | float:
    """Return a number as an int, or as the float that it is.

    Raises:
        ValueError: no float is this number, or it is one of several whole numbers that have the same float.
    """
    if abs(value) > MOST:
        raise ValueError(f"the number {_short(value)} is not held, as it is beyond 2^53 - 1. A string can hold it")
    if value == value.to_integral_value():
        return int(value)
    number = float(value)
    if Decimal(repr(number)) != value:
        raise ValueError(f"the number {_short(value)} is not held, as it has more digits than a 64-bit float")
    return number


def multiple(value: Decimal) -> int | float:
    """Return what `multipleOf` says.

    Raises:
        ValueError: a matcher would count in other steps.
    """
    number = exact(value)
    if number <= 0:
        raise ValueError(f"{_short(value)} is not above 0")
    coefficient, exponent = scaled(number)
    if coefficient > MOST_MULTIPLE or Decimal(coefficient).scaleb(-exponent) != value:
        raise ValueError(f"steps of {_short(value)} are not held, but some of fewer digits are")
    return number


def scaled(number: float) -> tuple[int, int]:
    """Return a number as a matcher takes it apart: a whole one, and how often it is divided by ten."""
    rest, exponent = float(number), 0
    while rest % 1:
        rest *= 10
        exponent += 1
    return int(rest), exponent


def _short(value: Decimal) -> str:
    text = str(value)
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}..."


_SIDES = (
    ("exclusiveMinimum", "maximum", "exclusiveMaximum", 1),
    ("exclusiveMaximum", "minimum", "exclusiveMinimum", -1),
)
_WORDS = ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


class NumberBounds:
    """Numbers by their keyword. A schema is checked alone, and all together where several may be about one number."""

    def __init__(self) -> None:
        self._found: dict[str, set[int | float]] = {}
        # Whether several schemas may apply to the same value. Which ones is not looked for: that they are all in one
        # document and contradict each other is rare enough.
        self.merges = False

    def add(self, schema: dict[str, Any], pointer: str) -> None:
        """Note what a schema says, and check it."""
        if schema.get("type") == "integer":
            # A matcher makes whole numbers of its bounds first.
            schema = {"multipleOf": schema["multipleOf"]} if "multipleOf" in schema else {}
        words = [word for word in _WORDS if word in schema]
        found = {word: {schema[word]} for word in words}
        _check(found, pointer)
        for word in words:
            self._found.setdefault(word, set()).add(schema[word])

    def check_together(self) -> None:
        """Check what all schemas say, as if it were about one number, if some are.

        Raises:
            Unheld: a matcher would not follow it.
        """
        if not self.merges:
            return
        _check(self._found, "")
        steps = [scaled(each) for each in self._found.get("multipleOf", ())]
        most = max([0, *(exponent for _, exponent in steps)])
        # The matcher (llguidance 1.9) refuses 65536 with 131072, though 131072 would do: it seems to multiply first.
        multiple = 1
        for number, exponent in steps:
            multiple *= number * 10 ** (most - exponent)
            if multiple > MOST_MULTIPLE:
                raise Unheld("multipleOf: the product of all of them is not held, as it is beyond 2^32")


def _check(found: dict[str, set[int | float]], pointer: str) -> None:
    """Refuse bounds that meet where a matcher errs.

    For example, it takes 0 for above 0 where there is a maximum of 0.5: both begin with "0".
    """
    for word, other, excluding_other, sign in _SIDES:
        whole = {sign * each for each in found.get(word, ()) if each == floor(each)}
        others = found.get(other, set()) | found.get(excluding_other, set())
        if not whole.isdisjoint(floor(sign * each) for each in others if each != floor(each)):
            why = f"a whole one is not held with a {other} less than 1 away"
            instead = word.removeprefix("exclusive").lower()
            raise Unheld(f"{word}{at(pointer)}: {why}. Take {instead}, which includes its number")
