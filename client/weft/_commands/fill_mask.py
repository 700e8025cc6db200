"""`weft fill-mask`: which words fit in the places of masks."""

from typing import Annotated

import typer

from weft import _show as show
from weft._files.kind import Kind
from weft._files.options import Files
from weft._options import Request, SourceText, read_argument
from weft._verbs.fill_mask import FILL_MASK, FilledMasks, FillMaskOptions

LINES = Kind(
    FILL_MASK,
    inputs=("text",),
    takes=FillMaskOptions,
    title="filling",
    fields=lambda answer: [" ".join(each.text.strip() for each in mask.fillings) for mask in answer.masks],
)


def fill_mask(
    text: SourceText = None,
    *,
    top: Annotated[
        int | None, typer.Option("--top", min=1, max=100, help="How many fillings of a mask at most.  [default: 5]")
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option("--among", metavar="TOKEN", help="Rank these tokens alone. Give several."),
    ] = None,
    files: Files,
    request: Request,
) -> None:
    """Say which words fit in the places of masks.

    For example: weft fill-mask "Rome is the [MASK]."

    A mask is a token that the model knows, such as [MASK]: `weft models --json` says its `mask_token`.

    Each filling is one line, best first, and an empty line is between masks. With --scores a line begins with score,
    start and end of the mask, with tabs between them. Start and end count the characters of the text (Unicode code
    points).
    """
    asked: FillMaskOptions = {**request.options(), "top_k": top, "targets": targets or ()}
    if files.is_asked({"a text": text}):
        wants_json, never = {"--scores": request.scores}, request.for_one()
        files.run(LINES, request, asked, as_json=request.as_json, wants_json=wants_json, never=never)
    source = read_argument(text or "")
    with request.client() as client, show.patience(LINES.title):
        answer = client.fill_mask(source, **asked)
    _print(answer, scores=request.scores, as_json=request.as_json)
    show.more(answer, verbose=request.verbose)
    request.draw(answer.alignment, title=source)


def _print(answer: FilledMasks, *, scores: bool, as_json: bool) -> None:
    """Print a line for each filling: its text; with scores its score, the mask's start and end, and text."""
    if as_json:
        show.emit_json(answer)
        return
    for index, mask in enumerate(answer.masks):
        if index and not scores:
            show.emit("")
        for each in mask.fillings:
            text = " ".join(each.text.split())
            show.emit("\t".join((f"{each.score:.4f}", str(mask.start), str(mask.end), text)) if scores else text)
