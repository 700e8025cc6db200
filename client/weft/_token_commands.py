"""The subcommands about a model's tokens."""

from typing import TYPE_CHECKING, Annotated

import typer

from weft import _show as show
from weft._options import AsJson, Language, ModelName, ModelVersion, SideName, VersionLabel, read_argument
from weft._server import PatientServer

if TYPE_CHECKING:
    from weft._tokenization import TokenizeOptions


def tokenize(
    model: ModelName,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", show_default=False, help="The text. A dash (-) reads it from stdin.")
    ],
    *,
    side: SideName = "",
    source_language: Language = "",
    target_language: Language = "",
    count: Annotated[bool, typer.Option("--count", help="Print how many tokens there are, and nothing else.")] = False,
    model_version: ModelVersion = None,
    version_label: VersionLabel = None,
    as_json: AsJson = False,
    server: PatientServer,
) -> None:
    """Cut a text into a model's tokens.

    Each is one line: its id, start, end and text, with tabs between them. Start and end count the characters of the
    text (Unicode code points). They are equal for a token that stands for none of it.
    """
    asked: TokenizeOptions = {
        "model": model,
        "model_version": model_version,
        "version_label": version_label,
        "side": side,
        "source_language": source_language,
        "target_language": target_language,
        "count_only": count,
    }
    with server.client() as client, show.patience("cutting"):
        answer = client.tokenize(read_argument(text), **asked)
    show.tokens(answer, counts=count, as_json=as_json)


def detokenize(
    model: ModelName,
    token_ids: Annotated[list[int], typer.Argument(metavar="ID...", min=0, show_default=False, help="Token ids.")],
    *,
    side: SideName = "",
    model_version: ModelVersion = None,
    version_label: VersionLabel = None,
    as_json: AsJson = False,
    server: PatientServer,
) -> None:
    """Print the text that tokens of a model stand for."""
    with server.client() as client, show.patience("joining"):
        answer = client.detokenize(
            token_ids, model=model, model_version=model_version, version_label=version_label, side=side
        )
    if as_json:
        show.emit_json(answer)
    else:
        show.emit(answer.text)
