"""`weft score`: how probable an answer is, or how well two texts match."""

from pathlib import Path
from typing import Annotated

import typer

from weft import _show as show
from weft._files.kind import TEXT, Kind
from weft._files.options import Files
from weft._options import AdapterName, AsJson, Language, ModelVersion, VersionLabel, read_argument
from weft._requests import recording_of
from weft._server import PatientServer
from weft._tables import about, score_table
from weft._verbs.score import SCORE, Score, ScoreOptions
from weft.exceptions import InvalidRequest

LINES = Kind(
    SCORE,
    inputs=(*TEXT, "image", "audio"),
    takes=ScoreOptions,
    title="scoring",
    fields=lambda answer: [f"{answer.total:.4f}"],
    beside="target",
)


def score(
    source: Annotated[
        str | None,
        typer.Argument(show_default=False, help="The source text or the prompt. A dash (-) reads it from stdin."),
    ] = None,
    answer: Annotated[
        str | None, typer.Argument(metavar="[TARGET]", show_default=False, help="What the model might answer.")
    ] = None,
    *,
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Name of the model. It is required.")] = "",
    model_version: ModelVersion = None,
    version_label: VersionLabel = None,
    adapter: AdapterName = "",
    source_language: Language = "",
    target_language: Language = "",
    is_picture: Annotated[bool, typer.Option("--picture", help="The source is the path of a picture.")] = False,
    is_recording: Annotated[
        bool, typer.Option("--recording", help="The source is the path of a recording, WAV or FLAC.")
    ] = False,
    top: Annotated[
        int,
        typer.Option("--top", min=0, max=20, help="Print for each token this number of the most probable ones."),
    ] = 0,
    scores: Annotated[
        bool, typer.Option("--scores", help="Print the probability of each token too, or its match.")
    ] = False,
    as_json: AsJson = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print model, tokens and timings on stderr.")
    ] = False,
    files: Files,
    server: PatientServer,
) -> None:
    """Say how probable a model finds an answer, or how well a document matches a query.

    For example: weft score "bread" "pan" --model en-es

    The line is the sum of its tokens' log-probabilities. Of a model with a vector for each token it is the score of
    both texts, and --scores prints what each token of the first met in the second.
    A line of --file has a source and a target, with a tab between them.
    """
    asked: ScoreOptions = {
        "model": model,
        "model_version": model_version,
        "version_label": version_label,
        "adapter": adapter,
        "source_language": source_language,
        "target_language": target_language,
        "num_top_tokens": top,
    }
    if is_picture and is_recording:
        raise InvalidRequest("--picture does not go with --recording")
    # A source alone is none, but is refused beside a file.
    is_whole = answer is not None or files.file is not None
    if files.is_asked({"a source and a target": source if is_whole else None}):
        wants_json, never = {"--scores": scores, "--top": top}, {"--verbose": verbose}
        what = (LINES, server, asked)
        files.run(*what, are_pictures=is_picture or is_recording, as_json=as_json, wants_json=wants_json, never=never)
    elif source is not None and answer is not None:
        given = recording_of(Path(source)) if is_recording else Path(source) if is_picture else read_argument(source)
        with server.client() as client, show.patience(LINES.title):
            scored = client.score(given, read_argument(answer), **asked)
        _print(scored, tokens=scores or top > 0, verbose=verbose, as_json=as_json)


def _print(answer: Score, *, tokens: bool, verbose: bool, as_json: bool) -> None:
    """Print the sum of log-probabilities, and on stderr what was asked for besides."""
    if as_json:
        show.emit_json(answer)
    else:
        show.emit(f"{answer.total:.4f}")
        if tokens:
            score_table(answer)
    if verbose:
        about(answer)
