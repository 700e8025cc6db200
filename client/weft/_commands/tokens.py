"""`weft tokenize` and `weft detokenize`: a model's tokens."""

from typing import Annotated

import typer

from weft import _show as show
from weft._options import AsJson, Language, ModelName, ModelVersion, SideName, VersionLabel, read_argument
from weft._server import PatientServer
from weft._verbs.tokenization import Tokenization, TokenizeOptions


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

    For example: weft tokenize en-es "we eat bread"

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
    _print(answer, counts=count, as_json=as_json)


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
    """Print the text that tokens of a model stand for.

    For example: weft detokenize en-es 7 12 3
    """
    with server.client() as client, show.patience("joining"):
        answer = client.detokenize(
            token_ids, model=model, model_version=model_version, version_label=version_label, side=side
        )
    if as_json:
        show.emit_json(answer)
    else:
        show.emit(answer.text)


def _print(answer: Tokenization, *, counts: bool, as_json: bool) -> None:
    """Print a line for each token: id, start, end and text, between tabs. Or print how many there are."""
    if as_json:
        show.emit_json(answer)
    elif counts:
        show.emit(str(answer.num_tokens))
    else:
        lines = ("\t".join((str(each.id), str(each.start), str(each.end), repr(each.token))) for each in answer.tokens)
        show.emit("\n".join(lines))
