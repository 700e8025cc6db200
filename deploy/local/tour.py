"""One request of each kind to a server of the demo models, in a table: what `make demo` shows."""

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

from weft._completions import Completion
from weft._decoding import Decoding, Sampling
from weft._sync.client import Client
from weft._terminal import words
from weft._verbs.classify import Classification
from weft._verbs.tag import Tagging
from weft.exceptions import Error, InvalidRequest
from weft.plot import plot_alignment

SENTENCE = "we are eating bread"
DOCSTRING = "Open the named file and return a stream that reads its compressed bytes."
QUESTION = "how many triangles are there?"
PROMPT = "Open a file and"
SEEDED = Decoding(max_new_tokens=64, strategy=Sampling(temperature=0.3, seed=10))  # a draw that reads well
NOTICE = "Maria Silva sent 25 euros to Lisbon on Monday."
LEGEND = """\
The first three are the server's.
queue: waiting for a slot.
prefill: reading the request, to the first token; \
all of the work where nothing is written.
decode: the other tokens.
round trip: what this client waited, with the wire, \
the tokenizer and the decoding of pictures."""

Answer = TypeVar("Answer", bound=Completion | Classification | Tagging)


def demo(
    target: Annotated[str, typer.Option(help="Where the server is.")] = "localhost:7070",
    checkpoints: Annotated[Path, typer.Option(help="Holds the example pictures.")] = Path("export/checkpoints"),
    out: Annotated[Path, typer.Option(help="Where the attention picture goes.")] = Path("build/demo"),
) -> None:
    """Ask for a text of each kind, two classifications and tags, and show them."""
    pictures = ("scenes", "scenes-answers", "digits")
    scene, asked, digit = (_first(checkpoints / name / "examples", "png") for name in pictures)
    command = _first(checkpoints / "commands" / "examples", "wav")
    with Client(target) as client:
        client.wait_until_ready()
        tour = _Tour()
        translation = tour.ask("translate", SENTENCE, lambda: client.translate(SENTENCE, explain=True))
        tour.ask("caption", scene.name, lambda: client.caption(scene))
        tour.ask("answer", f"{QUESTION} {asked.name}", lambda: client.answer(asked, QUESTION))
        tour.ask("transcribe", command.name, lambda: client.transcribe(command))
        tour.ask("classify", digit.name, lambda: client.classify(image=digit))
        tour.ask("classify", DOCSTRING, lambda: client.classify(DOCSTRING))
        tour.ask("tag", NOTICE, lambda: client.tag(NOTICE))
        tour.ask("generate", PROMPT, lambda: client.generate(PROMPT, decoding=SEEDED))
    console = Console(highlight=False)
    console.print(tour.answers, "", tour.times, "", LEGEND, sep="\n")
    if translation.alignment is not None:
        picture = out / "alignment.png"
        plot_alignment(translation.alignment, picture, title=translation.text)
        console.print(Text(f"\nWhat the translation looked at:\n{picture}", overflow="fold"))


class _Tour:
    """What was asked and answered, and where the time went; two tables, for both do not fit a narrow screen."""

    def __init__(self) -> None:
        self.answers = Table(title="One request of each kind\n", title_justify="left", box=None, show_header=False)
        self.answers.add_column(style="bold", justify="right")
        self.answers.add_column(overflow="fold")
        times = "Where the time went, in milliseconds\n"
        self.times = Table(title=times, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        self.times.add_column("request", no_wrap=True)
        self.times.add_column("model", overflow="fold")
        for column in ("queue", "prefill", "decode", "round\ntrip"):
            self.times.add_column(column, justify="right", no_wrap=True)

    def ask(self, verb: str, request: str, ask: Callable[[], Answer]) -> Answer:
        """Ask, and add a row to each table."""
        start = time.perf_counter()
        answer = ask()
        seconds = time.perf_counter() - start
        self.answers.add_row(verb, Text(request))
        self.answers.add_row("->", words(_said(answer).strip(), style="green"))
        timings = answer.timings
        times = (f"{1000 * each:.1f}" for each in (timings.queue, timings.prefill, timings.decode, seconds))
        self.times.add_row(verb, words(answer.model.name), *times)
        return answer


def _said(answer: Completion | Classification | Tagging) -> str:
    if isinstance(answer, Completion):
        return answer.text
    if isinstance(answer, Tagging):
        return ", ".join(f"{span.text}: {span.label}" for span in answer.spans)
    return f"{answer.labels[0].label} ({answer.labels[0].score:.1%})"


def _first(folder: Path, kind: str) -> Path:
    examples = sorted(folder.glob(f"*.{kind}"))
    if not examples:
        raise InvalidRequest(f"no example in {folder}: no file ends with .{kind}")
    return examples[0]


if __name__ == "__main__":
    try:
        typer.run(demo)
    except Error as error:
        sys.exit(f"weft: {error.message}")
