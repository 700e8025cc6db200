"""The options and arguments that subcommands share, what becomes of them for the SDK, and how typer is told of them."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer
from typer.core import TyperCommand

from weft import _show as show
from weft._decoding_options import DecodingOptions
from weft._server import PatientServer, Server
from weft._types import Alignment, Explain
from weft.exceptions import Error, InvalidRequest, Unavailable

if TYPE_CHECKING:
    from weft._verbs.options import Options, WritingOptions


PICTURES = (".png", ".pdf", ".svg")

SourceText = Annotated[str | None, typer.Argument(show_default=False, help="The text. A dash (-) reads it from stdin.")]
PicturePath = Annotated[Path | None, typer.Argument(help="A PNG, JPEG or WebP file.", show_default=False)]
RecordingPath = Annotated[Path | None, typer.Argument(help="A WAV or FLAC file.", show_default=False)]
Language = Annotated[str, typer.Option(metavar="TAG", help="BCP-47 tag such as en. By default the model's only one.")]
CacheSalt = Annotated[
    str, typer.Option("--cache-salt", metavar="TEXT", help="Share the server's cache only with who has the same.")
]
ModelName = Annotated[str, typer.Argument(metavar="MODEL", show_default=False, help="Name of the model.")]
ModelVersion = Annotated[
    int | None, typer.Option("--model-version", min=1, help="Version of the model. By default the highest.")
]
VersionLabel = Annotated[
    str | None,
    typer.Option("--version-label", metavar="LABEL", help="Name the version by its label: stable or canary."),
]
AdapterName = Annotated[
    str,
    typer.Option("--adapter", metavar="NAME", help="Answer by this adapter of the model. `weft models` lists them."),
]
SideName = Annotated[
    str, typer.Option("--side", metavar="SIDE", help="input, for what the model reads, or output, for what it writes.")
]
PromptName = Annotated[
    str | None,
    typer.Option(
        "--prompt-name",
        metavar="NAME",
        show_default=False,
        help="Put this prompt of the model before each text. `weft models` lists them. By default the model's own.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")]


@dataclass(frozen=True)
class Request(PatientServer):
    """What every request to a model takes."""

    HEADING: ClassVar = "Model and answer"

    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="Name of the model. By default the only one for the task.")
    ] = ""
    model_version: ModelVersion = None
    version_label: VersionLabel = None
    adapter: AdapterName = ""
    explain: Annotated[
        Path | None, typer.Option("--explain", metavar="OUT.png", help="Draw what the model looked at, into this file.")
    ] = None
    layer: Annotated[
        int | None,
        typer.Option(
            "--layer",
            min=0,
            help="With --explain: the attention layer, counted from 0. `weft models` shows how many there are.",
        ),
    ] = None
    head: Annotated[
        int | None,
        typer.Option(
            "--head",
            min=0,
            help="With --layer: the head of that layer, counted from 0. By default the average of all heads.",
        ),
    ] = None
    scores: Annotated[bool, typer.Option("--scores", help="Print the probabilities too.")] = False
    as_json: AsJson = False
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print model, tokens and timings on stderr.")] = False

    def options(self) -> "Options":
        """Return what the SDK takes; raises what makes it useless to ask at all."""
        return {
            "model": self.model,
            "model_version": self.model_version,
            "version_label": self.version_label,
            "adapter": self.adapter,
            "explain": self._explain(),
        }

    def for_one(self) -> dict[str, Any]:
        """Return the options, by name, that are for one input alone."""
        return {"--explain": self.explain, "--verbose": self.verbose}

    def _explain(self) -> bool | Explain:
        for name, needs in (("layer", "explain"), ("head", "layer")):
            if getattr(self, name) is not None and getattr(self, needs) is None:
                raise InvalidRequest(f"--{name} needs --{needs}")
        path = self.explain
        if path is None:
            return False
        from weft.plot import require_matplotlib  # noqa: PLC0415 - `weft translate` stays light

        require_matplotlib()
        if path.suffix.lower() not in PICTURES or path.is_dir():
            raise InvalidRequest(f"--explain: {str(path)!r} is no picture's name: it must end in {', '.join(PICTURES)}")
        if not path.parent.is_dir():
            raise InvalidRequest(f"--explain: there is no folder {str(path.parent)!r}")
        return Explain(self.layer, self.head)

    def draw(
        self,
        alignment: Alignment | None,
        *,
        title: str,
        image: Path | None = None,
        images: Sequence[Path] = (),
        recording: Path | None = None,
    ) -> None:
        """Draw what the model looked at, if that was asked for."""
        if self.explain is not None:
            if alignment is None:
                raise Error("the server did not say what the model looked at; it may be older than this client")
            if not alignment.target_tokens:
                raise Error("the answer is empty, so there is nothing to draw")
            from weft.plot import plot_alignment  # noqa: PLC0415 - same

            with show.patience("drawing"):
                plot_alignment(alignment, self.explain, title=title, image=image, images=images, recording=recording)


@dataclass(frozen=True)
class TextRequest(DecodingOptions, Request):
    """What every request for new text takes."""

    HEADING: ClassVar = "Model and answer"

    top_logprobs: Annotated[
        int | None,
        typer.Option(
            "--top-logprobs",
            min=1,
            max=20,
            help="Print for each token this number of the most probable ones, with --scores.",
        ),
    ] = None
    stream: Annotated[bool, typer.Option("--stream", help="Print the text piece by piece, as it comes.")] = False

    @property
    def tells_tokens(self) -> bool:
        """Whether the tokens of an answer are asked for."""
        return self.scores or self.top_logprobs is not None

    def options(self) -> "WritingOptions":
        """Return what the SDK takes."""
        return {
            **super().options(),
            "decoding": self.decoding(),
            "return_scores": self.tells_tokens,
            "num_top_tokens": self.top_logprobs or 0,
        }


def read_argument(text: str) -> str:
    """Give the text of an argument: stdin's, without its last line end, for a dash."""
    if text != "-":
        return text
    if sys.stdin is None:
        raise InvalidRequest("stdin is closed")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"stdin is not UTF-8: {error.reason} at byte {error.start}") from None


class SectionedCommand(TyperCommand):
    """A command whose options stand under the headings of their groups, `rich_help_panel` to typer."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then each section in the order in which its first option was declared."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                plain = "Arguments" if parameter.param_type_name == "argument" else "Options"
                heading = getattr(parameter, "rich_help_panel", None) or plain
                sections.setdefault(heading, []).append(record)
        for heading in sorted(sections, key=lambda each: each != "Arguments"):
            with formatter.section(heading):
                formatter.write_dl(sections[heading], col_max=min(30, formatter.width // 2 - 4))


def _hints_with_headings(group: Any) -> dict[str, Any]:
    """Return the annotations of a group; each of its options stands in the help where its class says."""
    types = get_type_hints(group, include_extras=True)
    for base in group.__mro__:
        for name in vars(base).get("__annotations__", {}) if "HEADING" in vars(base) else ():
            for option in getattr(types[name], "__metadata__", ()):
                option.rich_help_panel = base.HEADING
    return types


def flat(verb: Callable[..., None]) -> Callable[..., None]:
    """Give typer, which reads signatures, each option of the groups that `verb` takes; `verb` gets the groups."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    for parameter in signature(verb).parameters.values():
        if (group := groups.get(parameter.name)) is None:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        types = _hints_with_headings(group)
        parameters += (
            Parameter(
                each.name,
                Parameter.KEYWORD_ONLY,
                # An option without one is required.
                default=Parameter.empty if each.default is MISSING else each.default,
                annotation=types[each.name],
            )
            for each in fields(group)
        )

    @wraps(verb)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        try:
            verb(**given)
        except Unavailable as error:
            servers = [group for group in given.values() if isinstance(group, Server)]
            if error.reason in {"", "TLS"}:  # no server said it
                servers[0].look_again()
            raise

    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # inspect looks here first
    return run
