"""`weft tag`: the spans of a text that a model labels."""

from typing import Annotated

import typer

from weft import _show as show
from weft._files.kind import TEXT, Kind
from weft._files.options import Files
from weft._options import Request, SourceText, read_argument
from weft._verbs.tag import TAG, Tagging, TagOptions

LINES = Kind(
    TAG,
    inputs=TEXT,
    takes=TagOptions,
    title="tagging",
    fields=lambda answer: [f"{each.label} {each.start} {each.end} {each.text}" for each in answer.spans],
)


def tag(
    text: SourceText = None,
    *,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Print every token with its label, instead of the spans.")
    ] = False,
    files: Files,
    request: Request,
) -> None:
    """Find the spans of a text that the model labels.

    For example: weft tag "Ana lives in Lisbon."

    Each span is one line: its label, start, end and text, with tabs between them. Start and end count the characters
    of the text (Unicode code points).
    """
    asked = request.options()
    if files.is_asked({"a text": text}):
        wants_json = {"--scores": request.scores, "--tokens": tokens}
        never = request.for_one()
        files.run(LINES, request, asked, as_json=request.as_json, wants_json=wants_json, never=never)
    source = read_argument(text or "")
    with request.client() as client, show.patience(LINES.title):
        answer = client.tag(source, **asked)
    _print(answer, tokens=tokens, scores=request.scores, as_json=request.as_json)
    show.more(answer, verbose=request.verbose)
    request.draw(answer.alignment, title=source)


def _print(answer: Tagging, *, tokens: bool, scores: bool, as_json: bool) -> None:
    """Print a line for each span or token: label, start, end and text, between tabs."""
    if as_json:
        show.emit_json(answer)
        return
    found = [(each, each.token) for each in answer.tokens] if tokens else [(each, each.text) for each in answer.spans]
    for each, text in found:
        score = [f"{each.score:.4f}"] if scores else []
        show.emit(
            "\t".join((*score, " ".join(each.label.split()), str(each.start), str(each.end), " ".join(text.split())))
        )
