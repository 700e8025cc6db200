"""A value that is made of files, and made again when what they hold has changed and stands still."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")
# A file of which only a half has come may look whole. So one is believed that has been the same for so many seconds,
# or in two looks that are so many seconds apart.
STILL_S = 1.0
# A file of credentials is not longer than this.
MAX_BYTES = 4 * 1024 * 1024


class FileWatch(Generic[T]):
    """Compares contents, not times: so a swap of symbolic links, as Kubernetes does, is a change like any other."""

    def __init__(self, paths: Sequence[Path], make: Callable[[], T]) -> None:
        """Read the files. Raises what `make` raises."""
        self._paths = paths
        self._make = make
        # What the value was made of, and what the last look saw.
        self._made_of = self._last = contents_of(paths)
        self.value = make()

    def refresh(self) -> bool:
        """Look, at most every STILL_S. If two looks have seen the same change, make the value again.

        Returns whether it was made again. Raises what `make` raises, once for each change. The value then stays.
        """
        contents = contents_of(self._paths)
        stands_still, self._last = contents == self._last, contents
        if contents == self._made_of or not stands_still:
            return False
        try:
            value = self._make()
        except Exception:
            self._made_of = contents
            raise
        if contents_of(self._paths) != contents:
            return False  # `make` may have read something else
        self._made_of, self.value = contents, value
        return True


def contents_of(paths: Sequence[Path]) -> list[bytes | None]:
    """What files hold, or None for one that cannot be read."""
    return [_content(path) for path in paths]


def wait_until_still(paths: Sequence[Path], timeout_s: float) -> bool:
    """Wait until nobody has changed files for STILL_S. Returns whether that was so within `timeout_s` seconds.

    One whose time of status lies back so far has stood still. So most starts wait for nothing.
    """
    if all(_age_s(path) >= STILL_S for path in paths):
        return True
    give_up = time.monotonic() + timeout_s
    contents = contents_of(paths)
    while True:
        time.sleep(STILL_S)
        before, contents = contents, contents_of(paths)
        if before == contents:
            return True
        if time.monotonic() > give_up:
            return False


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_ctime
    except OSError:
        return STILL_S  # who makes the value will say why


def _content(path: Path) -> bytes | None:
    """What a file holds, or None when it cannot be read. `make` says why."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError:
        return None
