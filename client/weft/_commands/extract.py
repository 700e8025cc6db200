"""`weft extract`: the answer to a question in a text."""

from typing import Annotated

import typer

from weft import _show as show
from weft._files.kind import Kind
from weft._files.options import Files
from weft._options import Request, read_argument
from weft._verbs.extract import EXTRACT, Extraction, ExtractOptions

LINES = Kind(
    EXTRACT,
    inputs=("context",),
    takes=ExtractOptions,
    title="extracting",
    fields=lambda answer: [each.text for each in answer.answers],
    beside="question",
)


def extract(
    context: Annotated[
        str | None,
        typer.Argument(show_default=False, help="The text where the answer stands. A dash (-) reads it from stdin."),
    ] = None,
    question: Annotated[
        str | None, typer.Argument(metavar="[QUESTION]", show_default=False, help="What is asked about it.")
    ] = None,
    *,
    top: Annotated[
        int | None, typer.Option("--top", min=1, max=20, help="How many answers at most.  [default: 1]")
    ] = None,
    max_answer_tokens: Annotated[
        int | None,
        typer.Option("--max-answer-tokens", min=1, max=128, help="How many tokens an answer has.  [default: 15]"),
    ] = None,
    allow_no_answer: Annotated[
        bool, typer.Option("--allow-no-answer", help="An empty line is an answer too: that there is none.")
    ] = False,
    max_seq_len: Annotated[
        int | None,
        typer.Option(
            "--max-seq-len",
            min=1,
            help="Tokens of a window of a long text, with the question.  [default: what the model takes]",
        ),
    ] = None,
    doc_stride: Annotated[
        int | None,
        typer.Option(
            "--doc-stride", min=0, help="Tokens that two windows share.  [default: half a window, at most 128]"
        ),
    ] = None,
    files: Files,
    request: Request,
) -> None:
    """Find the answer to a question in a text.

    For example: weft extract "Ana is ill." "Who is ill?"

    Each answer is one line. With --scores it begins with its score, start and end, with tabs between them. Start and
    end count the characters of the text (Unicode code points). A line of --file has a text and a question, with a tab
    between them.
    """
    asked: ExtractOptions = {
        **request.options(),
        "top_k": top,
        "max_answer_tokens": max_answer_tokens,
        "allow_no_answer": allow_no_answer,
        "max_seq_len": max_seq_len,
        "doc_stride": doc_stride,
    }
    # A text alone is none, but is refused beside a file.
    is_whole = question is not None or files.file is not None
    if files.is_asked({"a text and a question": context if is_whole else None}):
        wants_json, never = {"--scores": request.scores}, request.for_one()
        files.run(LINES, request, asked, as_json=request.as_json, wants_json=wants_json, never=never)
    elif context is not None and question is not None:
        with request.client() as client, show.patience(LINES.title):
            answer = client.extract(read_argument(context), question, **asked)
        _print(answer, scores=request.scores, as_json=request.as_json)
        show.more(answer, verbose=request.verbose)
        request.draw(answer.alignment, title=question)


def _print(answer: Extraction, *, scores: bool, as_json: bool) -> None:
    """Print a line for each answer: its text; with scores its score, start, end and text, between tabs."""
    if as_json:
        show.emit_json(answer)
        return
    for each in answer.answers:
        text = " ".join(each.text.split())
        show.emit("\t".join((f"{each.score:.4f}", str(each.start), str(each.end), text)) if scores else text)
