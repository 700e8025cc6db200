"""`weft doctor`: says what is wrong with this machine and these settings, and how to mend it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft_server.checks.finding import ERROR, OK, WARNING, Finding, show
from weft_server.checks.machine import look_at_machine
from weft_server.checks.packages import look_at_packages

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
_JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def doctor(ctx: typer.Context, folder: str | None, *, as_json: bool, **flags: Any) -> None:
    """Look at this machine, and at what `weft serve` would do with the same settings. Say how to mend what is wrong.

    For example: weft doctor models --api-port 8000

    The exit code is 1 if something keeps a server from serving, and 0 otherwise.
    """
    _end([*look_at_packages(), *look_at_machine(), *_look_at_settings(ctx, folder, flags)], as_json=as_json)


def doctor_alone(*, as_json: _JSON = False) -> None:
    """Look at this machine. Settings and repositories can be looked at once the extra `server` is installed."""
    _end([*look_at_packages(), *look_at_machine()], as_json=as_json)


def _look_at_settings(ctx: typer.Context, folder: str | None, flags: dict[str, Any]) -> Iterable[Finding]:
    try:
        from weft_server.checks.bundles import look_at_bundles  # noqa: PLC0415 - may not be installed
        from weft_server.checks.settings import look_at_settings  # noqa: PLC0415 - same
    except ImportError:  # what is missing has been said
        return
    reading = read_flags(ctx, folder or flags["repository"] or ".", flags)
    if not (folder or flags["repository"]):
        yield Finding(OK, "repository", "none is given, and none was looked at")
        reading = reading._replace(bad=reading.bad | {"repository"})
    yield from look_at_settings(reading)
    yield from look_at_bundles(reading)


def _end(findings: list[Finding], *, as_json: bool) -> None:
    num_errors, num_warnings = (sum(finding.state == state for finding in findings) for state in (ERROR, WARNING))
    if as_json:
        said = {
            "findings": [finding._asdict() for finding in findings],
            "errors": num_errors,
            "warnings": num_warnings,
        }
        typer.echo(json.dumps(said))
    else:
        # What is wrong stands last, where a screen ends.
        show(sorted(findings, key=lambda finding: (OK, WARNING, ERROR).index(finding.state)))
        typer.echo(f"errors: {num_errors}, warnings: {num_warnings}")
    raise typer.Exit(int(num_errors > 0))


try:
    from weft_server.cli.flags import HelpOverText, read_flags, takes_settings
except ModuleNotFoundError:
    # Flags of settings are no reason to fail: who has no server yet may look at the machine.
    app.command("doctor", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(doctor_alone)
else:
    takes_settings(doctor, as_json=_JSON)
    app.command("doctor", cls=HelpOverText)(doctor)

if __name__ == "__main__":
    app()
