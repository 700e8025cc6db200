"""The table of options as flags of a command: its own stand before them."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from weft_export.options.table import ExportOptions


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, whose last parameter is `**options`, a flag for each row of the table. Returns the command."""
    own = [each for each in inspect.signature(command).parameters.values() if each.kind != each.VAR_KEYWORD]
    rows = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(ExportOptions)
    ]
    parameters = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *rows]
    signature = inspect.Signature(parameters)
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return command


def read_options(options: dict[str, Any]) -> ExportOptions:
    """Return what a command of `takes_options` was given."""
    return ExportOptions(**options)
