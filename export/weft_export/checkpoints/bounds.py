"""The bounds of what a checkpoint says. A server bounds the same in a manifest; here it is refused before any work."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from weft_proto.bundle_rules import LIMITS, MAX_STATE_ELEMENTS, Limit

if TYPE_CHECKING:  # torch takes seconds to import
    from weft_export.families.writer import State


def check_spec(key: str, spec: Message) -> None:
    """Raise ValueError naming the first field of text or image, or of a part of one, that is beyond its limit."""
    limits = LIMITS[spec.DESCRIPTOR.name]
    for field, value in spec.ListFields():
        name = f"{key}.{field.name}"
        if field.name in limits:
            check_value(name, value, limits[field.name])
        elif isinstance(value, Message):
            check_spec(name, value)


def check_value(name: str, value: Any, limit: Limit) -> None:
    """Raise ValueError when a number is out of its range, a string too long, or a list too long."""
    if limit.entries is None:
        _check_one(name, value, limit)
        return
    check_list(name, value, limit.entries)
    for index, each in enumerate(value):
        _check_one(f"{name}[{index}]", each, limit)


def check_list(name: str, value: Sequence[object], most: int) -> None:
    """Raise ValueError when there are too many entries."""
    if len(value) > most:
        raise ValueError(f"{name} has {len(value)} entries; at most {most} are allowed")


def check_states(states: "Iterable[State]") -> None:
    """Raise ValueError when a sequence of a model would take more memory than a server gives one."""
    for state in states:
        elements = math.prod(state.shape)
        if elements > MAX_STATE_ELEMENTS:
            raise ValueError(
                f"the state {state.name!r} of a sequence would have {elements} numbers; at most {MAX_STATE_ELEMENTS}"
                " are allowed"
            )


def _check_one(name: str, value: float | str | Message, limit: Limit) -> None:
    if isinstance(value, Message):
        check_spec(name, value)
        return
    assert limit.maximum is not None, f"{name} has no limit. This is a bug."
    if isinstance(value, str):
        if len(value) > limit.maximum:
            raise ValueError(f"{name} has {len(value)} characters; at most {limit.maximum} are allowed")
    elif not limit.minimum <= value <= limit.maximum:  # said this way round, NaN fails
        raise ValueError(f"{name} is {value:g}; it must be in [{limit.minimum:g}, {limit.maximum:g}]")
