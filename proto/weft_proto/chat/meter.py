"""What one rendering of a template may cost: what it makes, and the time it takes.

For example, `{% set ns.text = ns.text ~ ns.text %}` in a loop doubles a text at each pass. Its meter ends it before the
text is longer than it may be. The limit counts what is made, so the same template ends at the same place on any
machine. The limit on time is for what takes time and makes nothing.
"""

from __future__ import annotations

import time
from collections.abc import ItemsView, KeysView, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from jinja2 import Undefined

from weft_proto.chat.faults import BeyondLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# A rendering may make so many characters, and so many for each character of its messages. The result is one of them.
# Temporary texts count too, whether they are still there or not.
BASE_CHARS = 4_194_304
CHARS_PER_CHAR = 16
# What a pass of a loop, a call, or an entry of a list costs in characters.
ENTRY_CHARS = 16
# Of the thread's own time, so that a busy machine refuses nobody.
MAX_CPU_S = 2.0
# Of lists in lists. Python compares, hashes and prints them without a stop, some of it without a bound of its own.
MAX_DEPTH = 32
# Of an integer.
MAX_BITS = 1024
# What a number or any other object takes when it is printed: the digits that Python prints of an integer at most.
_OBJECT_CHARS = 4_300
# What a character takes when it is printed in a list: U+1F600 becomes \U0001f600.
_ESCAPED_CHARS = 10
# What has entries, and prints them.
_LISTS = (list, tuple, dict, KeysView, ItemsView, ValuesView)
_METER: ContextVar[Meter] = ContextVar("weft_meter")


class Meter:
    """Counts one rendering. A template's environment asks it before it makes something, and around each pass."""

    def __init__(self, num_chars: int = 0, check_wanted: Callable[[], None] | None = None) -> None:
        """Of messages of `num_chars` characters. `check_wanted` raises when nobody waits any more."""
        self._most = self._left = BASE_CHARS + CHARS_PER_CHAR * num_chars
        self._check_wanted = check_wanted
        self._end = time.thread_time() + MAX_CPU_S

    def check(self) -> None:
        """Raise BeyondLimit when the time is up, and what `check_wanted` raises."""
        if self._check_wanted is not None:
            self._check_wanted()
        if time.thread_time() > self._end:
            raise BeyondLimit(f"it takes over {MAX_CPU_S:g} s")

    def spend(self, num_chars: int) -> None:
        """Count what was made, or is made at once."""
        if num_chars < 0:
            raise ValueError("nothing is given back to a meter")
        self.check()
        self.fits(num_chars)
        self._left -= num_chars

    def fits(self, num_chars: int) -> None:
        """Raise BeyondLimit unless so much may still be made."""
        if num_chars > self._left:
            raise BeyondLimit(f"it makes over {self._most:,} characters")

    def keep(self, value: Any) -> Any:
        """Count a value that was made, and return it. A list in it is one entry: it was counted when it was made."""
        if isinstance(value, str):
            self.spend(len(value))
        elif isinstance(value, list | tuple | dict):
            self.spend(ENTRY_CHARS * (len(value) + 1))
            self.unfolded(value)
        elif isinstance(value, int):
            check_bits(value.bit_length())
            self.check()
        elif value is None or isinstance(value, float):
            self.check()
        elif hasattr(type(value), "__len__") and not isinstance(value, (*_LISTS, range, Undefined)):
            # Such as a set: it is not known how large it is when it is printed.
            raise TypeError(f"a template makes no {type(value).__name__}")
        else:
            self.spend(ENTRY_CHARS)
        return value

    def each(self, values: Iterable[Any], cost: int = 0) -> Iterator[Any]:
        """Go through values. Each costs a pass, and `cost` besides."""
        for value in values:
            self.spend(ENTRY_CHARS + cost)
            yield value

    def unfolded(self, value: Any) -> int:
        """Return how many entries and characters a value has, when each list in it is written out.

        Raises:
            BeyondLimit: there are more than may be made, or lists lie in lists too deeply.
        """
        size, rest = 0, [(value, 0)]
        while rest:
            part, depth = rest.pop()
            if isinstance(part, str):
                size += len(part)
            elif isinstance(part, _LISTS):
                if depth == MAX_DEPTH:
                    raise BeyondLimit(f"lists lie in lists, more than {MAX_DEPTH} deep")
                inner = [each for pair in part.items() for each in pair] if isinstance(part, dict) else list(part)
                size += len(inner)
                rest += [(each, depth + 1) for each in inner]
                self.check()
            if size > self._most:
                raise BeyondLimit(f"it makes over {self._most:,} characters")
        return size

    def text(self, value: Any) -> str:
        """Return what a value prints, and count it."""
        if isinstance(value, _LISTS):
            self.fits(_ESCAPED_CHARS * self.unfolded(value))
        elif not isinstance(value, str):
            self.fits(_OBJECT_CHARS)
        text = str(value)
        self.spend(len(text))
        return text


def check_bits(num_bits: int) -> None:
    """Raise BeyondLimit for an integer of more bits than one may have."""
    if num_bits > MAX_BITS:
        raise BeyondLimit(f"a number has over {MAX_BITS} bits")


@contextmanager
def metered(meter: Meter) -> Iterator[None]:
    """Let `meter` count what this thread renders."""
    token = _METER.set(meter)
    try:
        yield
    finally:
        _METER.reset(token)


def the_meter() -> Meter:
    """Return the meter of what is being rendered."""
    return _METER.get()
