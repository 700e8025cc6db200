"""`weft serve`, also `python -m weft_server`: flags and environment to settings, then serve until a signal."""

from __future__ import annotations

import asyncio
import inspect
import signal
import sys
from typing import Annotated, Any

import typer

from weft_server.config import ConfigError, ServerConfig, env_name, flag_name, read_config
from weft_server.logs import configure_logging
from weft_server.repository import RepositoryError

app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


def serve(**flags: Any) -> None:
    """Serve a model repository over gRPC until SIGTERM or Ctrl-C. Every flag is also an environment variable."""
    try:
        config = read_config(**flags)
        configure_logging(config.log_format, config.log_level)
        run(config)
    except (ConfigError, RepositoryError, ImportError, OSError) as error:
        typer.echo(f"weft serve: {error}", err=True)
        sys.exit(1)


def run(config: ServerConfig) -> None:
    """Serve with these settings until a signal."""
    # Until the server has handlers of its own: as process 1 of a container it would not hear it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
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


def _flags() -> inspect.Signature:
    """One flag for each field of ServerConfig; the field's text is its help."""
    parameters = []
    for name, field in ServerConfig.model_fields.items():
        default = "" if field.is_required() else f" [default: {field.default}]"
        help_text = f"{field.description}{default} [env: {env_name(name)}]"
        option = typer.Option(flag_name(name), help=help_text, show_default=False)
        annotation = Annotated[bool | None, option] if field.annotation is bool else Annotated[str | None, option]
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return inspect.Signature(parameters)


serve.__signature__ = _flags()  # type: ignore[attr-defined]
serve.__annotations__ = {name: parameter.annotation for name, parameter in _flags().parameters.items()}
app.command()(serve)

if __name__ == "__main__":
    app()
