"""One request of each kind to a server of the demo models, in a table: `python -m weft._demo`, run by `make demo`."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft._client import Client
from weft._types import Classification, Completion, Decoding, Tagging
from weft.exceptions import Error, InvalidRequest
from weft.plot import plot_alignment

SENTENCE = "we are eating bread"
DOCSTRING = "Open the named file and return a stream that reads its compressed bytes."
PROMPT = "Return the"
NOTICE = "Maria Silva sent 25 euros to Lisbon on Monday."

Answer = TypeVar("Answer", bound=Completion | Classification | Tagging)


def demo(
    target: Annotated[str, typer.Option(help="Where the server is.")] = "localhost:7070",
    checkpoints: Annotated[Path, typer.Option(help="Holds the example pictures.")] = Path("export/checkpoints"),
    out: Annotated[Path, typer.Option(help="Where the attention picture goes.")] = Path("build/demo"),
) -> None:
    """Ask for a translation, a caption, two classifications, tags and a continuation, and show what came back."""
    scene, digit = (_first_picture(checkpoints / name / "examples") for name in ("scenes", "digits"))
    table = Table(title=f"One request of each kind to {target}", box=SIMPLE_HEAD)
    for column in ("request", "answer", "model"):
        table.add_column(column, overflow="fold")
    for column in ("queue", "prefill", "decode", "seen here"):
        table.add_column(f"{column}\nms", justify="right")
    with Client(target) as client:
        client.wait_until_ready()
        translation = _timed(table, f"translate\n{SENTENCE}", lambda: client.translate(SENTENCE, explain=True))
        _timed(table, f"caption\n{scene.name}", lambda: client.caption(scene))
        _timed(table, f"classify\n{digit.name}", lambda: client.classify(image=digit))
        _timed(table, f"classify\n{DOCSTRING}", lambda: client.classify(DOCSTRING))
        _timed(table, f"tag\n{NOTICE}", lambda: client.tag(NOTICE))
        _timed(table, f"generate\n{PROMPT}", lambda: client.generate(PROMPT, decoding=Decoding(max_new_tokens=24)))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    if translation.alignment is not None:
        picture = out / "alignment.png"
        plot_alignment(translation.alignment, picture, title=translation.text)
        console.print(Text(f"What the translation looked at: {picture}"))


def _timed(table: Table, request: str, ask: Callable[[], Answer]) -> Answer:
    """Ask, and add a row: what was asked, what came back, and where the time went."""
    start = time.perf_counter()
    answer = ask()
    seconds = time.perf_counter() - start
    timings = answer.timings
    times = (f"{1000 * each:.1f}" for each in (timings.queue, timings.prefill, timings.decode, seconds))
    table.add_row(Text(request), Text(_said(answer)), Text(answer.model.name), *times)
    return answer


def _said(answer: Completion | Classification | Tagging) -> str:
    if isinstance(answer, Completion):
        return answer.text
    if isinstance(answer, Tagging):
        return ", ".join(f"{span.text}: {span.label}" for span in answer.spans)
    return f"{answer.labels[0].label} ({answer.labels[0].score:.1%})"


def _first_picture(folder: Path) -> Path:
    pictures = sorted(folder.glob("*.png"))
    if not pictures:
        raise InvalidRequest(f"no example picture in {folder}")
    return pictures[0]


if __name__ == "__main__":
    try:
        typer.run(demo)
    except Error as error:
        sys.exit(f"weft: {error.message}")
