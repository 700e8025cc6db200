"""The client's own subcommands: each one call of the SDK."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft import _show as show
from weft._files.options import Files
from weft._options import (
    AdapterName,
    AsJson,
    Language,
    ModelVersion,
    PromptName,
    Request,
    SourceText,
    VersionLabel,
    read_argument,
)
from weft._requests import recording_of
from weft._server import PatientServer, Server
from weft._types import Health
from weft.exceptions import InvalidRequest

if TYPE_CHECKING:
    from weft._verb_options import ClassifyOptions, EmbedOptions, ExtractOptions, FillMaskOptions, ScoreOptions


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

    If labels do not exclude each other, all are printed whose score is not below --threshold, one a line. Of a
    regression, its values are printed.
    """
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
            "classify",
            "classifying",
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
    with request.client() as client, show.patience("classifying"):
        answer = client.classify(source, image=picture, **asked)
    show.labels(answer, scores=request.scores, as_json=request.as_json)
    show.more(answer, verbose=request.verbose)
    request.draw(answer.alignment, title=show.label_title(answer), image=picture)


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

    Each span is one line: its label, start, end and text, with tabs between them. Start and end count the characters
    of the text (Unicode code points).
    """
    asked = request.options()
    if files.is_asked({"a text": text}):
        wants_json = {"--scores": request.scores, "--tokens": tokens}
        never = request.for_one()
        files.run("tag", "tagging", request, asked, as_json=request.as_json, wants_json=wants_json, never=never)
    source = read_argument(text or "")
    with request.client() as client, show.patience("tagging"):
        answer = client.tag(source, **asked)
    show.tags(answer, tokens=tokens, scores=request.scores, as_json=request.as_json)
    show.more(answer, verbose=request.verbose)
    request.draw(answer.alignment, title=source)


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
        files.run("extract", "extracting", request, asked, as_json=request.as_json, wants_json=wants_json, never=never)
    elif context is not None and question is not None:
        with request.client() as client, show.patience("extracting"):
            answer = client.extract(read_argument(context), question, **asked)
        show.extracted(answer, scores=request.scores, as_json=request.as_json)
        show.more(answer, verbose=request.verbose)
        request.draw(answer.alignment, title=question)


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

    A mask is a token that the model knows, such as [MASK]: `weft models --json` says its `mask_token`.

    Each filling is one line, best first, and an empty line is between masks. With --scores a line begins with score,
    start and end of the mask, with tabs between them. Start and end count the characters of the text (Unicode code
    points).
    """
    asked: FillMaskOptions = {**request.options(), "top_k": top, "targets": targets or ()}
    if files.is_asked({"a text": text}):
        wants_json, never = {"--scores": request.scores}, request.for_one()
        files.run("fill-mask", "filling", request, asked, as_json=request.as_json, wants_json=wants_json, never=never)
    source = read_argument(text or "")
    with request.client() as client, show.patience("filling"):
        answer = client.fill_mask(source, **asked)
    show.filled(answer, scores=request.scores, as_json=request.as_json)
    show.more(answer, verbose=request.verbose)
    request.draw(answer.alignment, title=source)


def embed(
    inputs: Annotated[
        list[str] | None, typer.Argument(show_default=False, help="Texts. A dash (-) reads one from stdin.")
    ] = None,
    *,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="The inputs, or the lines of --file, are paths of pictures.")
    ] = False,
    dimensions: Annotated[
        int | None,
        typer.Option("--dimensions", min=1, help="Cut each vector to this number of dimensions. By default all."),
    ] = None,
    prompt_name: PromptName = None,
    cosines: Annotated[
        bool, typer.Option("--cosines", help="Print the cosine of each pair of inputs instead, most alike first.")
    ] = False,
    files: Files,
    request: Request,
) -> None:
    """Turn texts or pictures into vectors.

    They are near each other where the inputs mean alike. Each is a line of numbers.
    """
    asked: EmbedOptions = {**request.options(), "dimensions": dimensions, "prompt_name": prompt_name}
    if request.scores:
        raise InvalidRequest("--scores: vectors have none")
    if files.is_asked({"a text": inputs or None}):
        never = {"--cosines": cosines, **request.for_one()}
        what = ("embed", "embedding", request, asked)
        files.run(*what, as_json=request.as_json, are_pictures=pictures, wants_json={}, never=never)
    given = inputs or []
    if cosines and request.as_json:
        raise InvalidRequest("--cosines does not go with --json")
    if cosines and len(given) < 2:
        raise InvalidRequest("--cosines needs two inputs or more")
    sources: dict[str, Any] = {"images": given} if pictures else {"texts": [read_argument(text) for text in given]}
    with request.client() as client, show.patience("embedding"):
        answer = client.embed(**sources, **asked)
    show.embedded(answer, given, cosines=cosines, as_json=request.as_json)
    show.more(answer, verbose=request.verbose)
    request.draw(answer.alignment, title=given[0], image=Path(given[0]) if pictures else None)


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
    scores: Annotated[bool, typer.Option("--scores", help="Print the probability of each token too.")] = False,
    as_json: AsJson = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print model, tokens and timings on stderr.")
    ] = False,
    files: Files,
    server: PatientServer,
) -> None:
    """Say how probable a model finds an answer.

    The line is the sum of its tokens' log-probabilities. A line of --file has a source and a target, with a tab between
    them.
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
        what = ("score", "scoring", server, asked)
        files.run(*what, are_pictures=is_picture or is_recording, as_json=as_json, wants_json=wants_json, never=never)
    elif source is not None and answer is not None:
        given = recording_of(Path(source)) if is_recording else Path(source) if is_picture else read_argument(source)
        with server.client() as client, show.patience("scoring"):
            scored = client.score(given, read_argument(answer), **asked)
        show.scored(scored, tokens=scores or top > 0, verbose=verbose, as_json=as_json)


def health(
    service: Annotated[
        str, typer.Argument(help="A health service: live, accepting or model/NAME. By default the whole server.")
    ] = "",
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the server is ready, at most --timeout seconds.")
    ] = False,
    server: Server,
) -> None:
    """Say whether the server serves.

    The exit code is 1 if it does not.
    """
    with server.client() as client, show.patience("waiting for the server"):
        if wait:
            client.wait_until_ready()
        state = client.health(service)
    show.emit(state)
    if state is not Health.SERVING:
        raise typer.Exit(1)
