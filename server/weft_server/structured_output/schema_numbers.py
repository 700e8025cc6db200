"""Numbers of a JSON Schema: those that a 64-bit float holds exactly, and steps that a matcher counts in."""

from __future__ import annotations

from decimal import Decimal

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
