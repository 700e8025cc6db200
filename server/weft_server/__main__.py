"""`weft serve`, also `python -m weft_server`: flags and environment to settings, then serve until a signal."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

from weft_server.bundle.repository import RepositoryError
from weft_server.config import ConfigError, ServerConfig, env_name, flag_name, read_config
from weft_server.telemetry.logs import configure_logging

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

# Without rich, whose columns cut names off in a narrow terminal.
app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})


class HelpOverText(TyperCommand):
    """Its help shows each setting on a line of its own, above its meaning. Nothing is cut off in 50 columns."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options."""
        formatter.write_dl = partial(formatter.write_dl, col_max=4)
        super().format_options(ctx, formatter)


def serve(ctx: typer.Context, folder: str | None, **flags: Any) -> None:
    """Serve a model repository over gRPC until SIGTERM or Ctrl-C.

    Each setting is a flag and an environment variable. The flag wins.
    """
    try:
        config = read_config(**_given(ctx, folder, flags))
        configure_logging(config.log_format, config.log_level)
        run(config)
    except (ConfigError, RepositoryError, ImportError, OSError) as error:
        typer.echo(f"weft serve: {error}", err=True)
        sys.exit(1)


def run(config: ServerConfig) -> None:
    """Serve with these settings until a signal."""
    # This is for the time until the server has handlers of its own. Without it, process 1 of a container ignores
    # SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # gRPC would write a line of its own, past our log, for each handshake that a stranger begins and does not end.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        from weft_server.app import App  # noqa: PLC0415 - late, so that --help needs no ONNX Runtime
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} is not installed: pip install 'weft-serving[server]' (or [gpu]), "
            "or in a clone: pip install '.[server]' (or [gpu])"
        ) from error

    async def main() -> None:
        await App(config).run()

    asyncio.run(main())


def _given(ctx: typer.Context, folder: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    """What the caller gave: no defaults, and a folder by itself is the repository."""
    # Compared by name: by its version, typer has click inside itself or beside itself.
    sources = {name: getattr(ctx.get_parameter_source(name), "name", "") for name in flags}
    given = {name: value for name, value in flags.items() if sources[name] != "DEFAULT"}
    if not folder:
        return given
    if sources["repository"] == "COMMANDLINE" and Path(flags["repository"]) != Path(folder):
        raise ConfigError(f"{flag_name('repository')} names {flags['repository']}, and the folder to serve is {folder}")
    return given | {"repository": folder}


def _signature() -> inspect.Signature:
    """The folder, and one flag for each field of ServerConfig. The field's text is its help."""
    folder = typer.Argument(metavar="REPOSITORY", help=f"The same as {flag_name('repository')} PATH.")
    parameters = [_parameter("ctx", typer.Context), _parameter("folder", Annotated[str | None, folder], None)]
    for name, field in ServerConfig.model_fields.items():
        # Values come as text, and ServerConfig reads them. So a wrong one gets the same line from a flag and from a
        # variable.
        if field.annotation is bool:
            help_text = f"{field.description}  [env var: {env_name(name)}; default: {str(field.default).lower()}]"
            option = typer.Option(flag_name(name), help=help_text, show_default=False)
            parameters.append(_parameter(name, Annotated[bool, option], field.default))
            continue
        option = typer.Option(flag_name(name), help=field.description, envvar=env_name(name), metavar=_type(field))
        default = None if field.is_required() or field.default is None else str(field.default)
        parameters.append(_parameter(name, Annotated[str | None, option], default))
    return inspect.Signature(parameters)


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _type(field: FieldInfo) -> str:
    """How a setting's values look: a number, a path, or one of some words."""
    if get_origin(field.annotation) is Literal:
        return "|".join(get_args(field.annotation))
    if field.annotation == Path | None:
        return "PATH"
    return {"int": "INTEGER", "float": "FLOAT", "Path": "PATH"}.get(getattr(field.annotation, "__name__", ""), "TEXT")


_SIGNATURE = _signature()
serve.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
serve.__annotations__ = {name: parameter.annotation for name, parameter in _SIGNATURE.parameters.items()}
app.command(cls=HelpOverText)(serve)

if __name__ == "__main__":
    app()
