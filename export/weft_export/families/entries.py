"""The entry points `weft.families`: what other packages say they bring. Nothing of them is imported here."""

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points

GROUP = "weft.families"


def family_entries() -> tuple[EntryPoint, ...]:
    """Return the entry points of the packages that are installed."""
    return _entries(tuple(sys.path))


@cache
def _entries(_: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Read what is installed. It takes some milliseconds, so it is done once for each sys.path."""
    return tuple(entry_points(group=GROUP))
