"""A look at what is on its way, again and again, for as long as there is any."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sized


class Sweep:
    """Calls `look` each `seconds` while `held` has something. To be used on the event loop's thread."""

    def __init__(self, look: Callable[[], None], held: Sized, seconds: float) -> None:
        self._look = look
        self._held = held
        self._seconds = seconds
        self._runs = False

    def begin(self) -> None:
        """Sweep from now on, if it is not done already."""
        if not self._runs:
            self._runs = True
            self._wait()

    def _wait(self) -> None:
        asyncio.get_running_loop().call_later(self._seconds, self._run)

    def _run(self) -> None:
        try:
            self._look()
        finally:
            self._runs = bool(self._held)
            if self._runs:
                self._wait()
