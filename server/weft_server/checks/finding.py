"""What a check found: how it stands with one thing, in words, and how to mend it."""

import shutil
import textwrap
from collections.abc import Iterable
from typing import Literal, NamedTuple

import typer

State = Literal["ok", "warning", "error"]
OK: State = "ok"
WARNING: State = "warning"
ERROR: State = "error"
# Of a line on a screen. Where nobody says how wide it is, it is as wide as a page.
_WIDTH = (80, 24)
_INDENT = " " * 9


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        state: an error keeps the server from serving; a warning does not.
        about: what was looked at, a word or two.
        says: how it stands with it. About a setting, it begins with its flag and variable.
        mend: what to do, if anything is to be done.
    """

    state: State
    about: str
    says: str
    mend: str = ""

    @property
    def line(self) -> str:
        """What is found and what to do, on one line."""
        return " ".join(f"{self.says}; {self.mend}".split()) if self.mend else " ".join(self.says.split())


def gigabytes(num_bytes: int) -> str:
    """Say a number of bytes in three digits."""
    return f"{num_bytes / 10**9:.3g} GB"


def show(findings: Iterable[Finding]) -> None:
    """Write findings on stdout, none wider than the terminal."""
    width = shutil.get_terminal_size(_WIDTH).columns
    for state, about, says, mend in findings:
        typer.echo(_wrapped(f"{state:<8} {about}: {says}", width))
        if mend:
            typer.echo(_wrapped(f"{_INDENT}-> {mend}", width))


def _wrapped(text: str, width: int) -> str:
    # A path or an address stays whole, so that it can be copied.
    return textwrap.fill(text, width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)
