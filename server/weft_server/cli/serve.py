"""`weft serve`: flags and environment to settings, then serve until a signal."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer

from weft_server.bundle.repository import RepositoryError
from weft_server.checks.finding import ERROR, WARNING, Finding, show
from weft_server.cli.flags import HelpOverText, read_flags, takes_settings
from weft_server.config import ConfigError
from weft_server.process.exit_codes import ExitCode
from weft_server.process.shutdown import take_signals
from weft_server.telemetry.logs import configure_logging, flush_logs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_server.config import Reading, ServerConfig
    from weft_server.process.shutdown import Shutdown

_log = structlog.get_logger(__name__)
# Without rich, whose columns cut names off in a narrow terminal.
app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
_CHECK = typer.Option(
    "--check",
    help="Serve nothing. Say whether a server would start with these settings, and whether each bundle is sound: its "
    "manifest, its files' digests, its room in memory. The exit code is 0 or 1.",
)
_CHECK_BEFORE = typer.Option(
    "--check-before",
    metavar="BYTES",
    min=0,
    help="Serve nothing. Say whether a server would start with these settings, before there is a repository, and "
    "whether a model whose weights take so many bytes would fit. `weft up` asks so.",
    show_default=False,
)


def serve(ctx: typer.Context, folder: str | None, *, check: bool, check_before: int | None, **flags: Any) -> None:
    """Serve a model repository over gRPC until SIGTERM or Ctrl-C.

    For example: weft serve models --api-port 8000

    Each setting is a flag and an environment variable. The flag wins.
    """
    try:
        if check_before is not None:
            look_before(read_flags(ctx, folder or ".", flags), check_before)
            return
        reading = read_flags(ctx, folder, flags)
        if check:
            look(reading)
            return
        stopping = take_signals()
        stopping.finish_with(flush_logs)
        # gRPC would write lines of its own, past our log, for what strangers send. It is read when gRPC is imported.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        configure_logging(reading.config.log_format, reading.config.log_level)
        verify(reading)
        run(reading.config, stopping)
    except (ConfigError, RepositoryError, ImportError, OSError) as error:
        for line in str(error).splitlines():
            typer.echo(f"weft serve: {line}", err=True)
        sys.exit(ExitCode.FAILED)
    except Exception:  # noqa: BLE001 - a bug, and the log is where it is looked for
        _log.exception("the server failed")
        sys.exit(ExitCode.FAILED)


def look(reading: Reading) -> None:
    """Say what serving with these settings would come to. Raises ConfigError if it would not do."""
    with _needs_the_extra():
        from weft_server.checks.bundles import look_at_bundles  # noqa: PLC0415 - late, as in `run`
        from weft_server.checks.settings import look_at_settings  # noqa: PLC0415
    findings = [*look_at_settings(reading), *look_at_bundles(reading)]
    _refuse(findings)
    show(findings)
    num_odd = sum(finding.state == WARNING for finding in findings)
    typer.echo(f"ok, warnings: {num_odd}" if num_odd else "ok")


def look_before(reading: Reading, num_bytes: int) -> None:
    """Say what serving a model of so many bytes would come to. Raises ConfigError if it would not do."""
    with _needs_the_extra():
        from weft_server.checks.settings import look_at_settings  # noqa: PLC0415
        from weft_server.checks.weights import look_at_weights  # noqa: PLC0415 - late, as in `run`
    # The repository is not there yet, or it is not to be looked at.
    reading = reading._replace(bad=reading.bad | {"repository"})
    _refuse([*look_at_settings(reading), *look_at_weights(reading, num_bytes)])
    typer.echo("ok")


def verify(reading: Reading) -> None:
    """Log what is odd about settings. Raises ConfigError, with a line for each, if any of them keeps from serving."""
    with _needs_the_extra():
        from weft_server.checks.settings import look_at_settings  # noqa: PLC0415 - late, as in `run`
    findings = look_at_settings(reading)
    _refuse(findings)
    for finding in findings:
        if finding.state == WARNING:
            _log.warning("settings", odd=finding.line)


def run(config: ServerConfig, stopping: Shutdown) -> None:
    """Serve with these settings until a signal."""
    with _needs_the_extra():
        import uvloop  # noqa: PLC0415 - late, so that --help needs no ONNX Runtime

        from weft_server.app import App  # noqa: PLC0415 - same
        from weft_server.checks.open_files import raise_limit  # noqa: PLC0415 - same
    raise_limit(config)

    async def main() -> None:
        stopping.take_back()
        await App(config, stopping).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def _refuse(findings: list[Finding]) -> None:
    if errors := [finding.line for finding in findings if finding.state == ERROR]:
        raise ConfigError("\n".join(errors))


@contextmanager
def _needs_the_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} is not installed: pip install 'weft-serving[server]' (or [gpu]), "
            "or in a clone: pip install '.[server]' (or [gpu])"
        ) from error


takes_settings(serve, check=Annotated[bool, _CHECK], check_before=Annotated[int | None, _CHECK_BEFORE])
app.command(cls=HelpOverText)(serve)
