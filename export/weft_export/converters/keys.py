"""What each key of a file beside the weights is to a bundle. Nothing that its owner's loader reads is dropped silently.

A table has a row for each key that the library which owns the file reads:

- USED: the exporter reads it, and judges it where it does;
- NEUTRAL: no value of it changes an answer;
- Only(values): other values would change answers, and are refused by name;
- Noted(values, note): with other values answers differ, and who exports is told.

A key without a row is told too: a newer library may have written it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft_export.errors import CheckpointError


@dataclass(frozen=True)
class Use:
    """A key whose value needs no look here."""

    what: str


@dataclass(frozen=True)
class Only:
    """A key with few values that can be followed. Null and an empty object, list or string are as if it were absent."""

    values: tuple[Any, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class Noted:
    """A key that is not followed, unless it has one of the values."""

    values: tuple[Any, ...]
    note: str


USED, NEUTRAL = Use("used"), Use("neutral")
Table = Mapping[str, Use | Only | Noted]


def check_keys(place: object, given: Mapping[str, Any], table: Table) -> list[str]:
    """Hold a file's object to its table and return notes. place is how an error names the file.

    Raises:
        CheckpointError: a key has a value that cannot be followed.
    """
    notes, unknown = [], []
    for name, value in given.items():
        row = table.get(name)
        if row is None and is_set(value):
            unknown.append(f"{name} ({value!r:.40})")
        if not is_set(value) or row is None or isinstance(row, Use) or among(value, row.values):
            continue
        if isinstance(row, Noted):
            notes.append(f"{name} is {value!r:.40}: {row.note}")
        else:
            raise CheckpointError(f"{place}: {name} is {value!r:.60}, which cannot be followed{row.advice}")
    if unknown:
        notes.append(f"{place} has keys that are not known here, and that are not followed: {', '.join(unknown[:8])}")
    return notes


def is_set(value: object) -> bool:
    """Whether a key says anything."""
    return value is not None and value not in ({}, [], "")


def among(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether a value is one of some. True is not 1."""
    return any(type(value) is type(each) and value == each for each in values)
