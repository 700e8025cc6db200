"""Points at which a test holds the server, or makes it fail. There are none unless WEFT_FAILPOINTS names a folder.

It is no setting. It is read once, at the start. A point is a wrapper around one method of one object, put there when
the object is made. So without the variable, nothing of this file is called.

A file in the folder that is named for a point, such as `en-es.decode`, says what befalls who comes by:

1. `hold`: he waits until the file is gone or says something else. Meanwhile there is a file `en-es.decode@THREAD`.
2. `hold 2`: the same, once two have gone by. With `hold 5` instead, three more go by.
3. `raise`: he does his work, and fails then. It is for one, and the file is gone.
4. `memory`: the same, for want of memory.

A file `ask` is answered by a file `answer`: what the server has under way, as JSON. See `tell`.

Write a file under another name and rename it, so that nobody reads half a word.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "WEFT_FAILPOINTS"
# Who is held looks this often whether he may go on.
POLL_S = 0.002
_ERRORS: dict[str, type[Exception]] = {"raise": RuntimeError, "memory": MemoryError}


class Failpoints:
    """All points of a process. Any thread may come by."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        # How many came by each point since its file says to hold.
        self._num_passed: Counter[str] = Counter()

    def wire(self, target: Any, method: str, point: str) -> None:
        """Put a point before and behind a method of an object."""
        inner = getattr(target, method)

        def through(*args: Any, **more: Any) -> Any:
            error = self._arrive(point)
            result = inner(*args, **more)
            if error is not None:
                raise error
            return result

        setattr(target, method, through)

    async def tell(self, under_way: Callable[[], dict[str, int]]) -> None:
        """Answer each file `ask` with what `under_way` gives, until cancelled."""
        while True:
            if self._take("ask"):
                (self._folder / "telling").write_text(json.dumps(under_way()))
                (self._folder / "telling").rename(self._folder / "answer")
            await asyncio.sleep(POLL_S)

    def _arrive(self, point: str) -> Exception | None:
        """Wait as long as the point's file says. Returns the error to fail with, if there is to be one."""
        words = self._words(point)
        if words[:1] == ["hold"] and self._num_before(point) >= _num_let_by(words):
            words = self._hold(point)
        if words[:1] != ["hold"]:
            with self._lock:
                self._num_passed.pop(point, None)
        error = _ERRORS.get(" ".join(words))
        return error(f"failpoint {point}") if error and self._take(point) else None

    def _hold(self, point: str) -> list[str]:
        """Wait until the point's file says to hold no more, or only later ones. Returns what it says then."""
        mark = self._folder / f"{point}@{threading.current_thread().name.replace('/', '-')}"
        mark.touch()
        while (words := self._words(point))[:1] == ["hold"] and self._num_passed[point] > _num_let_by(words):
            time.sleep(POLL_S)
        mark.unlink()
        return words

    def _num_before(self, point: str) -> int:
        with self._lock:
            self._num_passed[point] += 1
            return self._num_passed[point] - 1

    def _words(self, point: str) -> list[str]:
        try:
            return (self._folder / point).read_text().split()
        except FileNotFoundError:
            return []

    def _take(self, point: str) -> bool:
        """Remove the point's file. Returns whether it was there: of several, one is first."""
        try:
            (self._folder / point).unlink()
        except FileNotFoundError:
            return False
        return True


def _num_let_by(words: list[str]) -> int:
    """How many go by before one is held."""
    return int(words[1]) if len(words) > 1 else 0


POINTS = Failpoints(Path(os.environ[VARIABLE])) if os.environ.get(VARIABLE) else None
