"""`weft classify`: the label of a picture or of a text."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from weft import _show as show
from weft._files.kind import TEXT, Kind
from weft._files.options import Files
from weft._options import PromptName, Request, read_argument
from weft._types import LabelScoring
from weft._verbs.classify import CLASSIFY, Classification, ClassifyOptions, LabelScore
from weft.exceptions import InvalidRequest


def _held(answer: Classification, *, is_choice: bool) -> tuple[LabelScore, ...]:
    """Return the labels that hold: the first one, or all where labels do not exclude each other.

    is_choice: whether the request brought the labels to choose from. No threshold has been set for these.
    """
    return answer.labels[:1] if is_choice or answer.scoring is LabelScoring.UNSPECIFIED else answer.labels


def _label_texts(answer: Classification, *, is_choice: bool = False) -> list[str]:
    """Return what a person reads of each label that holds: its name, or the value of a regression."""
    if answer.scoring is not LabelScoring.IDENTITY:
        return [each.label for each in _held(answer, is_choice=is_choice)]
    if len(answer.labels) == 1:  # its name says nothing
        return [f"{answer.labels[0].score:.4f}"]
    return [f"{each.score:.4f}  {each.label}" for each in answer.labels]


def _label_title(answer: Classification, *, is_choice: bool) -> str:
    """Return the labels that hold with their scores, as one line above a picture."""
    figure = ".4f" if answer.scoring is LabelScoring.IDENTITY else ".1%"
    return ", ".join(f"{each.label} ({each.score:{figure}})" for each in _held(answer, is_choice=is_choice))


LINES = Kind(CLASSIFY, inputs=(*TEXT, "image"), takes=ClassifyOptions, title="classifying", fields=_label_texts)


def classify(
    picture: Annotated[Path | None, typer.Argument(help="A PNG, JPEG or WebP file.")] = None,
    *,
    text: Annotated[
        str | None,
        typer.Option(
            "--text", metavar="TEXT", help="Classify this text instead of a picture. A dash (-) reads it from stdin."
        ),
    ] = None,
    pair: Annotated[
        str | None,
        typer.Option("--pair", metavar="TEXT", help="With --text: a second text, judged beside it (cross-encoders)."),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="LABEL",
            show_default=False,
            help="A label to choose for the picture, for a model that takes labels. Give it once for each.",
        ),
    ] = None,
    label_text: Annotated[
        str,
        typer.Option(
            "--label-text",
            metavar="TEXT",
            show_default=False,
            help="With --label: the text that each label is put into, in the place of {}. By default the model's own.",
        ),
    ] = "",
    top: Annotated[
        int | None,
        typer.Option("--top", min=1, help="How many labels to print with --scores or --json. By default at most 5."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            show_default=False,
            help="The least score of a label that is printed. By default 0.5 where several may be true at once.",
        ),
    ] = None,
    prompt_name: PromptName = None,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="With --file: each line is the path of a picture, and no text.")
    ] = False,
    files: Files,
    request: Request,
) -> None:
    """Find the label of a picture or of a text.

    For example: weft classify --text "Open a connection."

    If labels do not exclude each other, all are printed whose score is not below --threshold, one a line. Of labels to
    choose from, the best one is. Of a regression, its values are printed.
    """
    is_choice = bool(labels) and threshold is None
    asked: ClassifyOptions = {
        **request.options(),
        "text_pair": pair,
        "labels": labels or (),
        "label_text": label_text,
        "top_k": top,
        "threshold": threshold,
        "prompt_name": prompt_name,
    }
    if files.is_asked({"a picture": picture, "--text": text}):
        files.run(
            replace(LINES, fields=partial(_label_texts, is_choice=is_choice)),
            request,
            asked,
            as_json=request.as_json,
            are_pictures=pictures,
            wants_json={"--scores": request.scores, "--top": top},
            never=request.for_one(),
        )
    if pictures:
        raise InvalidRequest("--pictures needs --file")
    if picture is not None and text is None and not picture.exists():
        raise InvalidRequest(f"there is no file {str(picture)!r}; --text TEXT classifies a text")
    source = None if text is None else read_argument(text)
    with request.client() as client, show.patience(LINES.title):
        answer = client.classify(source, image=picture, **asked)
    if request.as_json:
        show.emit_json(answer)
    else:
        _print(answer, scores=request.scores, is_choice=is_choice)
    show.more(answer, verbose=request.verbose)
    request.draw(answer.alignment, title=_label_title(answer, is_choice=is_choice), image=picture)


def _print(answer: Classification, *, scores: bool, is_choice: bool) -> None:
    """Print the labels that hold, a line each; with scores all that came, and of a regression its values."""
    texts = _label_texts(answer, is_choice=is_choice)
    lines = [f"{each.score:.4f}  {each.label}" for each in answer.labels] if scores else texts
    if lines:
        show.emit("\n".join(lines))
