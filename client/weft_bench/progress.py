"""How a load goes on, on the terminal of whoever waits."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from weft._terminal import steerless
from weft_bench.load import Plan, Run
from weft_bench.record import Outcome


@contextmanager
def progress(plan: Plan, title: str) -> Iterator[Callable[[Run], None]]:
    """Show a bar on stderr while the block lasts, and give what to call with the run now and then. Not in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(12), TextColumn("{task.fields[facts]}"))
    # Its own thread would take the interpreter from the generator whenever it likes.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task(steerless(title), total=1.0, facts="")
        last = _Last()

        def show(run: Run) -> None:
            bar.update(task, completed=_share(run, plan), facts=last.facts(run))
            bar.refresh()

        yield show


def _share(run: Run, plan: Plan) -> float:
    """Return how much of the plan is done, [0, 1]."""
    seconds = time.monotonic() - run.start + plan.warmup_s
    shares = [0.0]
    if plan.duration_s is not None:
        shares.append(seconds / (plan.warmup_s + plan.duration_s))
    if plan.num_requests is not None:
        shares.append(run.num_counted / plan.num_requests)
    return min(1.0, max(shares))


class _Last:
    """Rates since the last look."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._completed = 0
        self._tokens = 0

    def facts(self, run: Run) -> str:
        now = time.monotonic()
        completed = run.num_ended[Outcome.COMPLETED]
        seconds = max(now - self._at, 1e-9)
        rates = f"{(completed - self._completed) / seconds:.0f}/s"
        if run.num_tokens:
            rates += f", {(run.num_tokens - self._tokens) / seconds:.0f} tokens/s"
        self._at = now
        self._completed = completed
        self._tokens = run.num_tokens

        failed = run.num_ended[Outcome.FAILED]
        return f"{run.num_running} in flight, {completed} done, {f'{failed} failed, ' if failed else ''}{rates}"
