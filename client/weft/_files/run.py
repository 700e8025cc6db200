"""A run: the lines of one file are asked, a few at a time, and their answers written in order. A bar shows how far."""

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from weft import _show as show
from weft._async.client import AsyncClient
from weft._files.asking import Asking, Blank
from weft._files.lines import Line, Source
from weft._files.out import Out, json_line, text_line
from weft._flags import in_flags
from weft._many import Questions
from weft._patience import is_of_refused_bundle
from weft._terminal import steerless
from weft.exceptions import AccessDenied, Cancelled, DeadlineExceeded, Error, Unavailable


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


_HEALTH_S = 5.0
# What is no fault of a line: of a server that goes away, some calls are cancelled.
_GONE = (Unavailable, Cancelled)


@dataclass
class Run:
    """One run.

    Args:
        make_client: Makes the client, within the loop.
        asking: How a line is asked.
        source: Where the lines come from.
        out: Where the answers go.
        writes_json: Whether they are JSON.
        concurrency: How many lines are asked at once.
    """

    make_client: Callable[[], AsyncClient]
    asking: Asking
    source: Source
    out: Out
    writes_json: bool
    concurrency: int
    tally: Tally = field(default_factory=Tally)

    def go(self) -> int:
        """Run to the end and return the exit code: 1 if a line failed, else 0. Says at the end what became of them.

        Raises:
            Error: There is no server, or none for us: the line that found it has no answer, so the run can be resumed.
        """
        self.tally.num_there = self.out.num_there
        try:
            asyncio.run(self._go())
        except BaseException:
            if self.tally.num_done:
                self._say(f"stopped: {self.tally.sentence()}{'. --resume goes on' if self.out.can_resume else ''}")
            raise
        self.out.finish()
        self._say(self.tally.sentence())
        return 1 if self.tally.num_failed else 0

    async def _go(self) -> None:
        waiting: deque[Line] = deque()
        lines = _noted(self.source.lines(behind=self.out.num_there), waiting)
        # A bar between answers on the same terminal would be no bar.
        shown = not (self.out.is_stdout and sys.stdout.isatty())
        with bar(self.asking.kind.title, self.source.num_bytes, shown=shown) as shows:
            async with self.make_client() as client:
                asked = Questions(self.asking.kind.verb, lines, self.asking.request)
                many = client._many(asked, self.concurrency, None)  # noqa: SLF001 - our own
                async with many:
                    async for outcome in many:
                        line = waiting.popleft()
                        await self._check_server(client, line, outcome)
                        self.out.write(self._line(line, outcome, shows))
                        self.tally.count(outcome)
                        shows.advance(self.tally, line.end)

    async def _check_server(self, client: AsyncClient, line: Line, outcome: Any) -> None:
        """Raise what is no fault of the line, and would be the fate of all others too."""
        if _is_of_model(outcome) and self.asking.said_by(line, "model"):
            return
        if isinstance(outcome, (*_GONE, AccessDenied)):
            raise outcome
        if isinstance(outcome, DeadlineExceeded):
            try:
                await client.health("live", timeout=_HEALTH_S)
            except (Unavailable, DeadlineExceeded):  # which says more than that the line came to no end
                raise
            except Error:  # it is there
                return

    def _line(self, line: Line, outcome: Any, shows: Bar) -> str:
        """Return the line that stands for an outcome."""
        if isinstance(outcome, Blank):
            return ""
        if self.writes_json:
            ascii_only = self.out.is_stdout and not show.is_utf8()
            return json_line(outcome, self.asking.said_by(line, "id"), ascii_only=ascii_only)
        if isinstance(outcome, Error):
            message = outcome.message if self.asking.is_json else in_flags(outcome.message)
            shows.say(f"weft: line {line.number}: {message}")
            return ""
        return text_line(self.asking.kind.fields(outcome))

    def _say(self, line: str) -> None:
        print(f"weft: {line}", file=sys.stderr, flush=True)  # noqa: T201 - about the answers, not one of them


def _is_of_model(outcome: Any) -> bool:
    """Whether other models may answer: this one is closed to us, or its bundle was refused."""
    return isinstance(outcome, Error) and (outcome.reason == "MODEL_NOT_ALLOWED" or is_of_refused_bundle(outcome))


def _noted(lines: Iterable[Line] | AsyncIterable[Line], waiting: deque[Line]) -> Any:
    """Give the lines on, and keep each until its outcome comes."""
    return _noted_async(lines, waiting) if isinstance(lines, AsyncIterable) else _noted_sync(lines, waiting)


def _noted_sync(lines: Iterable[Line], waiting: deque[Line]) -> Iterator[Line]:
    for line in lines:
        waiting.append(line)
        yield line


async def _noted_async(lines: AsyncIterable[Line], waiting: deque[Line]) -> AsyncIterator[Line]:
    async for line in lines:
        waiting.append(line)
        yield line


def is_jsonl(path: Path) -> bool:
    """Tell by its name whether a file holds lines of JSON."""
    return path.suffix.lower() in {".jsonl", ".ndjson"}
