"""What a recipe measured, and how long it took."""

import time

Figures = dict[str, float | int | str]
"""What a recipe measured on held-out data, by name."""


class Stopwatch:
    """How long a recipe takes, in wall time and in processor time: the second does not count what others computed."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def figures(self) -> Figures:
        """Return the seconds since the beginning."""
        return {
            "wall seconds": round(time.monotonic() - self._wall),
            "CPU seconds": round(time.process_time() - self._cpu),
        }
