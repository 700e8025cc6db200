"""How an answer is shown in Python: what it says, and not what nobody asked for."""

from dataclasses import fields
from typing import Any


class Brief:
    """A dataclass whose `repr` leaves out what is empty, or as it is by default.

    Those that derive from it are dataclasses with `repr=False`, which else writes one of its own.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the call that would make it, without what it says nothing by."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        defaults = {field.name: field.default for field in fields(self)}  # type: ignore[arg-type]
        said = [f"{name}={value!r}" for name, value in values.items() if not _is_empty(value, defaults[name])]
        return f"{type(self).__name__}({', '.join(said)})"


def _is_empty(value: Any, default: Any) -> bool:
    return value is None or value in ((), "", default)
