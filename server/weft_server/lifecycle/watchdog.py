"""The server's pulse: once a second what hangs is replaced, and whoever asks hears what is stuck."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft_server.models.registry import ModelRegistry, RegistryEntry

# Seconds between two looks at the lanes.
BEAT_S = 1.0
# A lane that hangs is replaced after the time for a step. The server is stuck if that has not happened this much later.
STALL_S = 10.0
_log = structlog.get_logger(__name__)


class Watchdog:
    """One for the server. To be used on the event loop's thread, but for `why_not_live`."""

    def __init__(
        self,
        models: ModelRegistry,
        step_timeout_s: float,
        *,
        fail: Callable[[str], None],
        also: Callable[[], Awaitable[None]],
    ) -> None:
        """`fail` ends the server, for a reason. `also` is done at each beat."""
        self._models = models
        self._step_timeout_s = step_timeout_s
        self._fail = fail
        self._also = also
        # Monotonic seconds. Before the first one nothing can be said.
        self._last_beat = math.inf
        # What was logged of models that cannot be supervised.
        self._faults: dict[tuple[str, int], str] = {}

    async def beat(self) -> None:
        """For ever, replace what hangs."""
        while True:
            stood_still = time.monotonic() - self._last_beat > 2 * BEAT_S
            self._last_beat = time.monotonic()
            for entry in self._models.entries:
                # The lanes of a process that stood still look as if they hung. They have until the next beat.
                if not stood_still:
                    self._supervise(entry)
            await self._also()
            await asyncio.sleep(BEAT_S)

    def why_not_live(self) -> str:
        """Return what is stuck, or nothing while every lane and the event loop move. Any thread may ask."""
        late = time.monotonic() - self._step_timeout_s - STALL_S
        if self._last_beat < late:
            return "the event loop is stuck"
        for entry in self._models.entries:
            model = entry.model  # it may leave meanwhile: this runs in HTTP's threads too
            if model and model.last_beat < late:
                return f"model {entry.name} has a lane that is stuck"
        return ""

    def _supervise(self, entry: RegistryEntry) -> None:
        """Look at the lanes and workers of one model. A bug with one leaves the others supervised."""
        key, fault = (entry.name, entry.version), ""
        if entry.model is None:
            self._faults.pop(key, None)
            return
        try:
            entry.model.supervise(self._step_timeout_s)
        except Exception as error:  # noqa: BLE001 - same
            fault = f"{type(error).__name__}: {error}"
            if fault != self._faults.get(key):
                _log.exception("supervision failed", model=entry.name, version=entry.version)
        self._faults[key] = fault
        if entry.model.has_failed:
            self._fail(f"too many failures of model {entry.name}")
