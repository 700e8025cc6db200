"""How far a run is: counts, a bar on the terminal of whoever waits, and the line at the end."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from weft._files.asking import Blank
from weft._terminal import steerless
from weft.exceptions import Error


@dataclass(slots=True)
class Tally:
    """What became of the lines so far. `num_there` had answers before the run."""

    num_there: int = 0
    num_answered: int = 0
    num_failed: int = 0
    num_empty: int = 0
    start: float = field(default_factory=time.monotonic)

    @property
    def num_done(self) -> int:
        """The lines of this run."""
        return self.num_answered + self.num_failed + self.num_empty

    def count(self, outcome: Any) -> None:
        """Count one more line."""
        if isinstance(outcome, Blank):
            self.num_empty += 1
        elif isinstance(outcome, Error):
            self.num_failed += 1
        else:
            self.num_answered += 1

    def rate(self) -> float:
        """Return the lines of this run in a second."""
        return self.num_done / max(time.monotonic() - self.start, 1e-9)

    def sentence(self) -> str:
        """Say it in a line."""
        parts = [f"{self.num_answered:,} answered"] if self.num_answered or not self.num_there else []
        parts += [f"{self.num_failed:,} failed"] if self.num_failed else []
        parts += [f"{self.num_empty:,} empty"] if self.num_empty else []
        parts += [f"{self.num_there:,} were there"] if self.num_there else []
        total = self.num_done + self.num_there
        lines = "1 line" if total == 1 else f"{total:,} lines"
        took = f"; {time.monotonic() - self.start:.1f} s, {self.rate():,.1f} a second" if self.num_done else ""
        return f"{lines}: {', '.join(parts)}{took}"


class Bar:
    """Shows a tally, and says what went wrong above it."""

    def __init__(self, progress: Progress | None, title: str, num_bytes: int | None) -> None:
        self._progress = progress
        if progress is not None:
            self._task = progress.add_task(steerless(title), total=num_bytes, facts="")

    def advance(self, tally: Tally, num_bytes: int) -> None:
        """Show that so much of the input is done."""
        if self._progress is not None:
            failed = f", {tally.num_failed:,} failed" if tally.num_failed else ""
            facts = f"{tally.num_done:,} done{failed}, {tally.rate():,.1f}/s"
            self._progress.update(self._task, completed=num_bytes, facts=facts)

    def say(self, line: str) -> None:
        """Print a line on stderr."""
        if self._progress is not None:
            self._progress.console.print(Text(steerless(line)), soft_wrap=True)
        elif sys.stderr is not None:
            print(steerless(line), file=sys.stderr, flush=True)  # noqa: T201 - an error line belongs on stderr


@contextmanager
def bar(title: str, num_bytes: int | None, *, shown: bool) -> Iterator[Bar]:
    """Show a bar while the block lasts, on a terminal and where no answers are printed between."""
    if not (shown and sys.stderr.isatty()):
        yield Bar(None, title, num_bytes)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(12), TextColumn("{task.fields[facts]}"))
    left = () if num_bytes is None else (TimeRemainingColumn(compact=True),)
    with Progress(*columns, *left, console=Console(stderr=True), refresh_per_second=4, transient=True) as progress:
        yield Bar(progress, title, num_bytes)
