"""What the exit code of `weft serve` says. deploy/README.md has the same table, and the unit for systemd follows it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ExitCode(IntEnum):
    """A code of the process."""

    DONE = 0
    FAILED = 1
    # The command line's library ends with it by itself.
    USAGE = 2


class Ending(NamedTuple):
    """A row: when the server ends with a code, and what systemd does then. None: a signal ended it."""

    code: ExitCode | None
    when: str
    systemd: str


ENDINGS = (
    Ending(ExitCode.DONE, "a drain ended, or a signal came before the server listened", "stays down"),
    Ending(
        ExitCode.FAILED,
        "a setting is wrong, a port is taken or no model is there: the last lines of the log say what",
        "tries again, five times",
    ),
    Ending(
        ExitCode.FAILED, "lanes fail too often, a thread hangs, or the drain did not end in time", "starts it again"
    ),
    Ending(ExitCode.FAILED, "a second SIGTERM or Ctrl-C came", "stays down, if it was `systemctl stop`"),
    Ending(ExitCode.USAGE, "the command line is wrong", "stays down"),
    Ending(
        None,
        "the kernel ended the process, for want of memory for instance, or systemd, because it stood still",
        "starts it again",
    ),
)
