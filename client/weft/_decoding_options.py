"""The options that say how text is produced, and the Decoding that they make."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from weft._decoding import Alternatives, Beams, Decoding, EarlyStopping, Sampling
from weft._decoding_json import decoding_from, over
from weft.exceptions import InvalidRequest
from weft_proto.decoding import LENGTH_PENALTY, PENALTIES, SAMPLING, DecodingField


def _number(name: str, help_: str, **more: Any) -> Any:
    """Describe an option of a number."""
    return typer.Option(f"--{name}", help=help_, **more)


def _option(field: DecodingField) -> Any:
    """Describe the option of a field of the table. An end that is outside its range is told by its help alone."""
    return typer.Option(field.flag, help=field.help, min=field.minimum, max=field.maximum)


def _group(name: str, heading: str, table: Iterable[DecodingField]) -> Any:
    """Make a group of options of fields of the table."""
    options = [(each.name, Annotated[each.kind | None, _option(each)], None) for each in table if each.help]
    return make_dataclass(name, options, namespace={"HEADING": heading}, frozen=True)


@dataclass(frozen=True)
class Lengths:
    """How long an answer may be, and where it stops."""

    HEADING: ClassVar = "Length"

    max_new_tokens: Annotated[int | None, _number("max-new-tokens", "Stop after this number of tokens.", min=1)] = None
    min_new_tokens: Annotated[
        int | None, _number("min-new-tokens", "Do not end before this number of tokens.", min=0)
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="Stop before this text. Can be given up to four times."),
    ] = None


Drawing = _group("Drawing", "Drawing at random", SAMPLING)


@dataclass(frozen=True)
class Search:
    """How the best of several answers is found, and how many are shown."""

    HEADING: ClassVar = "Search and several answers"

    beams: Annotated[
        int | None, _number("beams", "Search with this number of beams for the most probable answer.", min=1)
    ] = None
    length_penalty: Annotated[float | None, _option(LENGTH_PENALTY)] = None
    early_stopping: Annotated[
        EarlyStopping | None,
        typer.Option("--early-stopping", help="In a search: when it is done.", case_sensitive=False),
    ] = None
    alternatives: Annotated[
        int | None,
        _number("alternatives", "Begin with each of this number of the most probable first tokens.", min=1),
    ] = None
    num_outputs: Annotated[
        int | None,
        typer.Option(
            "--num-outputs", "--n-best", min=1, help="Give this number of answers: draws, or the best of a search."
        ),
    ] = None


Penalties = _group("Penalties", "Words", PENALTIES)


@dataclass(frozen=True)
class Wording(Penalties):  # type: ignore[valid-type,misc] # made of the table
    """Which words may come."""

    HEADING: ClassVar = "Words"

    ban: Annotated[
        list[str] | None,
        typer.Option("--ban", metavar="TEXT", help="Never write the tokens of this text. Can be given several times."),
    ] = None
    prefix: Annotated[str | None, typer.Option("--prefix", metavar="TEXT", help="What the answer begins with.")] = None


@dataclass(frozen=True)
class Shape:
    """What an answer must be, as a whole."""

    HEADING: ClassVar = "Shape"

    json_schema: Annotated[
        Path | None,
        typer.Option("--json-schema", metavar="FILE", help="The answer is JSON that fits this JSON Schema."),
    ] = None
    regex: Annotated[
        str | None,
        typer.Option("--regex", metavar="REGEX", help="The answer is what this regular expression matches."),
    ] = None
    lark: Annotated[
        Path | None, typer.Option("--lark", metavar="FILE", help="The answer fits this grammar, in Lark's notation.")
    ] = None
    choice: Annotated[
        list[str] | None,
        typer.Option("--choice", metavar="TEXT", help="The answer is one of these. Given once for each."),
    ] = None
    decoding_json: Annotated[
        str | None,
        typer.Option(
            "--decoding",
            metavar="JSON",
            help="All of this and more as an object, as --json shows it. Other options go before it.",
        ),
    ] = None


@dataclass(frozen=True)
class DecodingOptions(Shape, Wording, Search, Drawing, Lengths):  # type: ignore[valid-type,misc] # so is Drawing
    """All of them. As soon as one option of sampling is given it samples, of a search it searches."""

    def decoding(self) -> Decoding:
        """Return what was asked for; raises InvalidRequest where options contradict each other."""
        asked = Decoding(
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=self.min_new_tokens,
            stop=tuple(self.stop or ()),
            strategy=self._strategy(),
            num_outputs=self._num_outputs(),
            **{each.name: getattr(self, each.name) for each in fields(Penalties)},
            banned=tuple(self.ban or ()),
            prefix=self.prefix,
            **self._constraint(),
        )
        if self.decoding_json is None:
            return asked
        try:
            return over(asked, decoding_from(json.loads(self.decoding_json), "--decoding"))
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"--decoding: is no JSON: {error}") from None

    def _strategy(self) -> Sampling | Beams | Alternatives | None:
        drawing = {each.name: value for each in fields(Drawing) if (value := getattr(self, each.name)) is not None}
        search = {
            name: value
            for name in ("beams", "length_penalty", "early_stopping")
            if (value := getattr(self, name)) is not None
        }
        kinds = [*list(drawing)[:1], *list(search)[:1], *(["alternatives"] if self.alternatives is not None else [])]
        if len(kinds) > 1:
            raise InvalidRequest(f"{_flag(kinds[0])} does not go with {_flag(kinds[1])}")
        if drawing:
            return Sampling(**drawing)
        if search:
            return Beams(self.beams, self.length_penalty, self.early_stopping)
        return None if self.alternatives is None else Alternatives()

    def _num_outputs(self) -> int | None:
        if self.alternatives is not None and self.num_outputs is not None:
            raise InvalidRequest("--alternatives does not go with --num-outputs")
        return self.num_outputs if self.alternatives is None else self.alternatives

    def _constraint(self) -> dict[str, Any]:
        names = ("json_schema", "regex", "lark", "choice")
        given = [name for name in names if getattr(self, name)]
        if len(given) > 1:
            raise InvalidRequest(f"{_flag(given[0])} does not go with {_flag(given[1])}")
        return {
            "json_schema": _content("--json-schema", self.json_schema),
            "regex": self.regex,
            "lark": _content("--lark", self.lark),
            "choices": tuple(self.choice) if self.choice else None,
        }


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _content(flag: str, path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{flag}: {path} is not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise InvalidRequest(f"{flag}: cannot read {path}: {error.strerror}") from None
