"""Asks the server, before anything takes long, whether it would start with its flags and hold the model."""

import json
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from io import StringIO
from math import prod
from pathlib import Path

import typer

from weft_export.checkpoints.files import check_regular
from weft_export.checkpoints.formats import is_gguf, is_pth
from weft_export.converters.gguf.names import parts_of
from weft_export.errors import ExportError

# What a number of a weight takes at least in a bundle, in bits, scales left out.
_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "int8": 8, "int8-weights": 8, "int4": 4, "nf4": 4, "int4-fp16": 4}
# Where a file does not say how many numbers it has, this is the most that one may take there.
_MOST_BYTES = 4
_WRONG_USAGE = 2
"""The exit code of a command whose options it does not know."""
_HEADER_BYTES = 100_000_000
"""The longest header that safetensors allows."""


def ask_server(flags: Sequence[str], num_bytes: int) -> None:
    """Ask `weft serve` about its flags, its ports, its device, and room for a model of so many bytes.

    It is asked in this process, by the name of its subcommand: a second one would import typer and the contracts anew.

    Raises:
        ExportError: it would not start; in its words.
    """
    (entry,) = entry_points(group="weft.commands", name="serve")
    # The bundle has no repository yet: this folder stands for it, and is not looked at.
    asked = [".", "--check-before", str(num_bytes), *flags]
    answer, refusal = StringIO(), StringIO()
    try:
        with redirect_stdout(answer), redirect_stderr(refusal):
            typer.main.get_command(entry.load()).main(args=asked, prog_name="weft serve")
    except SystemExit as end:
        code, said = end.code, refusal.getvalue()
    if code == 0:
        return
    if code == _WRONG_USAGE:
        wrong = said.rpartition("Error: ")[2].strip().rstrip(".")
        raise ExportError(f"{wrong}. Try weft up --help, and weft serve --help.")
    # A package that is missing is said by the exit itself.
    lines = [line.removeprefix("weft serve: ") for line in (code if isinstance(code, str) else said).splitlines()]
    assert lines, f"weft serve ended with {code}: {answer.getvalue()}. This is a bug."
    raise ExportError("; ".join(lines))


def least_bytes(checkpoint: Path, precision: str) -> int:
    """Return what a bundle's weights take at least, in bytes: all numbers of the checkpoint in this precision."""
    # Beside these, a directory may have the same weights once more: consolidated.safetensors.
    files = [*checkpoint.glob("model*.safetensors")]
    number = sum(map(_num_weights, files))
    if is_gguf(checkpoint):
        number = sum(map(check_regular, parts_of(checkpoint))) // _MOST_BYTES
    elif is_pth(checkpoint):
        number = check_regular(checkpoint) // _MOST_BYTES
    elif not files:
        number = sum(check_regular(path) for path in checkpoint.glob("pytorch_model*.bin")) // _MOST_BYTES
    return number * _BITS[precision] // 8


def _num_weights(path: Path) -> int:
    """Return how many numbers a file of safetensors has, by its header. What is wrong with it, the export says."""
    check_regular(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(length)) if length <= _HEADER_BYTES else {}
            return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return 0
