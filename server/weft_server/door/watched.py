"""A value that is made of files, and made again when what they hold changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")


class Watched(Generic[T]):
    """Compares contents, not times: so a swap of symbolic links, as Kubernetes does, is a change like any other."""

    def __init__(self, paths: Sequence[Path], make: Callable[[], T]) -> None:
        """Read the files. Raises what `make` raises."""
        self._paths = paths
        self._make = make
        self._seen = self._contents()
        self.value = make()

    def refresh(self) -> bool:
        """Make the value again if the files have changed. Returns whether they have.

        Raises what `make` raises, once for each change. The value then stays what it was.
        """
        contents = self._contents()
        if contents == self._seen:
            return False
        # A file that changes between here and `make` is a change for the next call.
        self._seen = contents
        self.value = self._make()
        return True

    def _contents(self) -> list[bytes | None]:
        return [_content(path) for path in self._paths]


def _content(path: Path) -> bytes | None:
    """What a file holds, or None when it cannot be read. `make` says why."""
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None
