"""The client's own subcommands: each one call of the SDK."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft import _options as options
from weft import _show as show
from weft._client import Client
from weft._types import Alignment, Decoding, Health, Sampling
from weft.exceptions import InvalidRequest

PICTURES = (".png", ".pdf", ".svg")

if TYPE_CHECKING:
    from weft._requests import CaptionOptions, ClassifyOptions, GenerateOptions, TranslateOptions

TARGET = "localhost:7070"
TIMEOUT = 60.0


def translate(
    text: options.SourceText,
    *,
    target: options.Target = TARGET,
    model: options.Model = "",
    model_version: options.ModelVersion = None,
    timeout: options.Timeout = TIMEOUT,
    source_language: Annotated[str, typer.Option(help="BCP-47 tag; by default the model's only one.")] = "",
    target_language: Annotated[str, typer.Option(help="BCP-47 tag; by default the model's only one.")] = "",
    max_new_tokens: options.MaxNewTokens = None,
    stop: options.Stop = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.Seed = None,
    explain: options.Explain = None,
    stream: options.Streamed = False,
    scores: options.Scores = False,
    as_json: options.AsJson = False,
    verbose: options.Verbose = False,
) -> None:
    """Translate a text."""
    source = _read(text)
    asked: TranslateOptions = {
        "model": model,
        "model_version": model_version,
        "source_language": source_language,
        "target_language": target_language,
        "decoding": _decoding(max_new_tokens, stop, temperature, top_k, top_p, seed),
        "return_scores": scores,
        "explain": _will_draw(explain),
    }
    with Client(target, timeout=timeout) as client:
        if stream:
            answer = show.streamed(client.stream_translate(source, **asked), as_json=as_json)
        else:
            with show.patience("translating"):
                answer = client.translate(source, **asked)
            show.whole(answer, answer.text, as_json=as_json)
    show.more(answer, verbose=verbose, scores=scores and not as_json)
    _draw(answer.alignment, explain, title=answer.text)


def caption(
    picture: options.PicturePath,
    *,
    target: options.Target = TARGET,
    model: options.Model = "",
    model_version: options.ModelVersion = None,
    timeout: options.Timeout = TIMEOUT,
    max_new_tokens: options.MaxNewTokens = None,
    stop: options.Stop = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.Seed = None,
    explain: options.Explain = None,
    stream: options.Streamed = False,
    scores: options.Scores = False,
    as_json: options.AsJson = False,
    verbose: options.Verbose = False,
) -> None:
    """Describe a picture."""
    asked: CaptionOptions = {
        "model": model,
        "model_version": model_version,
        "decoding": _decoding(max_new_tokens, stop, temperature, top_k, top_p, seed),
        "return_scores": scores,
        "explain": _will_draw(explain),
    }
    with Client(target, timeout=timeout) as client:
        if stream:
            answer = show.streamed(client.stream_caption(picture, **asked), as_json=as_json)
        else:
            with show.patience("looking"):
                answer = client.caption(picture, **asked)
            show.whole(answer, answer.text, as_json=as_json)
    show.more(answer, verbose=verbose, scores=scores and not as_json)
    _draw(answer.alignment, explain, title=answer.text, image=picture)


def classify(
    picture: Annotated[Path | None, typer.Argument(help="A PNG, JPEG or WebP file.")] = None,
    *,
    text: Annotated[str | None, typer.Option("--text", help="A text instead, or - to read it from stdin.")] = None,
    top: Annotated[
        int | None, typer.Option("--top", help="With --scores: how many labels; by default up to 5.")
    ] = None,
    target: options.Target = TARGET,
    model: options.Model = "",
    model_version: options.ModelVersion = None,
    timeout: options.Timeout = TIMEOUT,
    scores: options.Scores = False,
    as_json: options.AsJson = False,
    verbose: options.Verbose = False,
) -> None:
    """Put a picture or a text into one of the model's labels."""
    source = None if text is None else _read(text)
    asked: ClassifyOptions = {"model": model, "model_version": model_version, "top_k": top}
    with Client(target, timeout=timeout) as client, show.patience("classifying"):
        answer = client.classify(source, image=picture, **asked)
    lines = [f"{each.score:.4f}  {each.label}" for each in answer.labels]
    show.whole(answer, "\n".join(lines) if scores else answer.labels[0].label, as_json=as_json)
    show.more(answer, verbose=verbose)


def generate(
    prompt: options.SourceText,
    *,
    target: options.Target = TARGET,
    model: options.Model = "",
    model_version: options.ModelVersion = None,
    timeout: options.Timeout = TIMEOUT,
    max_new_tokens: options.MaxNewTokens = None,
    stop: options.Stop = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.Seed = None,
    stream: options.Streamed = False,
    scores: options.Scores = False,
    as_json: options.AsJson = False,
    verbose: options.Verbose = False,
) -> None:
    """Continue a text."""
    source = _read(prompt)
    asked: GenerateOptions = {
        "model": model,
        "model_version": model_version,
        "decoding": _decoding(max_new_tokens, stop, temperature, top_k, top_p, seed),
        "return_scores": scores,
    }
    with Client(target, timeout=timeout) as client:
        if stream:
            answer = show.streamed(client.stream_generate(source, **asked), as_json=as_json)
        else:
            with show.patience("generating"):
                answer = client.generate(source, **asked)
            show.whole(answer, answer.text, as_json=as_json)
    show.more(answer, verbose=verbose, scores=scores and not as_json)


def models(
    *, target: options.Target = TARGET, timeout: options.Timeout = TIMEOUT, as_json: options.AsJson = False
) -> None:
    """List the server's models."""
    with Client(target, timeout=timeout) as client, show.patience("asking"):
        found = client.list_models()
    if as_json:
        for model in found:
            show.emit_json(model)
    else:
        show.model_table(found)


def health(
    service: Annotated[str, typer.Argument(help="A service, live, or model/NAME; by default the whole server.")] = "",
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the server is ready, for --timeout seconds.")
    ] = False,
    target: options.Target = TARGET,
    timeout: options.Timeout = TIMEOUT,
) -> None:
    """Say whether the server serves; exit code 1 when it does not."""
    with Client(target, timeout=timeout) as client, show.patience("waiting for the server"):
        if wait:
            client.wait_until_ready()
        state = client.health(service)
    show.emit(state)
    if state is not Health.SERVING:
        raise typer.Exit(1)


def _read(text: str) -> str:
    """Give the text of an argument: stdin's, without its last line end, for a dash."""
    if text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"stdin is not UTF-8: {error.reason} at byte {error.start}") from None


def _decoding(
    max_new_tokens: int | None,
    stop: list[str] | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
) -> Decoding:
    """Sample as soon as one option of sampling is given; else leave the choice to the model."""
    sampling = Sampling(temperature, top_k, top_p, seed)
    return Decoding(
        max_new_tokens=max_new_tokens, stop=tuple(stop or ()), strategy=None if sampling == Sampling() else sampling
    )


def _will_draw(path: Path | None) -> bool:
    """Tell whether a picture was asked for, and refuse before anything is sent when it can't be drawn."""
    if path is not None:
        from weft.plot import require_matplotlib  # noqa: PLC0415 - `weft translate` stays light

        require_matplotlib()
        if path.suffix not in PICTURES or path.is_dir():
            raise InvalidRequest(f"--explain: {str(path)!r} is no picture's name: it must end in {', '.join(PICTURES)}")
        if not path.parent.is_dir():
            raise InvalidRequest(f"--explain: there is no folder {str(path.parent)!r}")
    return path is not None


def _draw(alignment: Alignment | None, path: Path | None, *, title: str, image: Path | None = None) -> None:
    if alignment is not None and path is not None:
        from weft.plot import plot_alignment  # noqa: PLC0415 - same

        with show.patience("drawing"):
            plot_alignment(alignment, path, title=title, image=image)
