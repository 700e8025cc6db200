"""The settings as flags of a command: one for each field of ServerConfig, whose text is its help."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

from weft_server.config import Reading, ServerConfig, env_name, flag_name, try_config
from weft_server.setting_types import Port

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic.fields import FieldInfo


class HelpOverText(TyperCommand):
    """Its help shows each setting on a line of its own, above its meaning. Nothing is cut off in 50 columns."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options."""
        formatter.write_dl = partial(formatter.write_dl, col_max=4)
        super().format_options(ctx, formatter)


def takes_settings(command: Callable[..., None], **options: Any) -> None:
    """Give a command, which has `ctx`, `folder` and `**flags`, the folder to serve and a flag for each setting.

    `options` are further ones of its own, each an annotation of typer's. They are off by default: False, or None.
    """
    signature = _signature(options)
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}


def read_flags(ctx: typer.Context, folder: str | None, flags: dict[str, Any]) -> Reading:
    """Return the settings that a command was given: `folder` is the repository, and `flags` are all others."""
    # Compared by name: by its version, typer has click inside itself or beside itself.
    sources = {name: getattr(ctx.get_parameter_source(name), "name", "") for name in flags}
    given = {name: value for name, value in flags.items() if sources[name] != "DEFAULT"}
    if not folder:
        return try_config(**given)
    reading = try_config(**given | {"repository": folder})
    if sources["repository"] == "COMMANDLINE" and Path(flags["repository"]) != Path(folder):
        other = f"{flag_name('repository')} names {flags['repository']}, and the folder to serve is {folder}"
        return reading._replace(faults=[other, *reading.faults], bad=reading.bad | {"repository"})
    return reading


def _signature(options: dict[str, Any]) -> inspect.Signature:
    folder = typer.Argument(metavar="REPOSITORY", help=f"The same as {flag_name('repository')} PATH.")
    parameters = [_parameter("ctx", typer.Context), _parameter("folder", Annotated[str | None, folder], None)]
    parameters += [_parameter(name, option, default=_off(option)) for name, option in options.items()]
    for name, field in ServerConfig.model_fields.items():
        # Values come as text, and ServerConfig reads them. So a wrong one gets the same line from a flag and from a
        # variable.
        if field.annotation is bool:
            help_text = f"{field.description}  [env var: {env_name(name)}; default: {str(field.default).lower()}]"
            both = f"{flag_name(name)}/{flag_name(f'no_{name}')}"
            option = typer.Option(both, help=help_text, show_default=False)
            parameters.append(_parameter(name, Annotated[bool, option], field.default))
            continue
        option = typer.Option(flag_name(name), help=field.description, envvar=env_name(name), metavar=_type(field))
        default = None if field.is_required() or field.default is None else str(field.default)
        parameters.append(_parameter(name, Annotated[str | None, option], default))
    return inspect.Signature(parameters)


def _off(option: Any) -> Any:
    return False if get_args(option)[0] is bool else None


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _type(field: FieldInfo) -> str:
    """How a setting's values look: a number, a path, or one of some words."""
    if get_origin(field.annotation) is Literal:
        return "|".join(get_args(field.annotation))
    if field.annotation == Path | None:
        return "PATH"
    if field.annotation == Port | None:
        return "INTEGER"
    return {"int": "INTEGER", "float": "FLOAT", "Path": "PATH"}.get(getattr(field.annotation, "__name__", ""), "TEXT")
