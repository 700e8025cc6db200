"""What answers are as lines, and where they go: a file that a run which was killed can go on with, or stdout."""

import os
import re
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from weft import _show as show
from weft._files.lines import Source
from weft._status import code_of
from weft.exceptions import Error, InvalidRequest

_LINE_ENDS = re.compile(r"\r\n|[\n\r\t\v\f\x1c-\x1e\x85\u2028\u2029]")


def json_line(outcome: Any, id_: Any, *, ascii_only: bool) -> str:
    """Return an answer, or what went wrong, as an object; with the id that its line had."""
    own = {} if id_ is None else {"id": id_}
    if isinstance(outcome, Error):
        error = {"code": code_of(outcome), "reason": outcome.reason, "message": outcome.message}
        own |= {"error": {name: value for name, value in error.items() if value}}
    else:
        own |= show.plain(outcome)
    return show.json_text(own, ascii_only=ascii_only)


def text_line(fields: Iterable[str]) -> str:
    """Return the texts of an answer as one line, with tabs between. Line ends and tabs within a text are spaces."""
    return "\t".join(_LINE_ENDS.sub(" ", each) for each in fields)


_CHUNK_BYTES = 1 << 20
_BINARY = getattr(os, "O_BINARY", 0)  # a line feed stays one byte where it would be two


class Out:
    """Takes whole lines, in order. As a context manager it lets go of its file.

    A file is written line by line, each by one call of the system, so that what a killed run leaves is whole lines
    and perhaps a part of one, which `resume` cuts off. Nothing is changed before the first line.

    Args:
        path: The file; stdout for a dash.
        source: Where the inputs come from, which must be another file.
        resume: Whether to go on behind the lines that are there.
        force: Whether to write the file anew.

    Raises:
        InvalidRequest: There can be no such file, or there is one and neither `resume` nor `force` is set.
    """

    def __init__(self, path: Path, source: Source, *, resume: bool = False, force: bool = False) -> None:
        self.num_there = 0
        self._path = path
        self._fd: int | None = None
        self._is_new = False
        # Behind the last whole line of what is kept. None: as it is.
        self._cut_at: int | None = None
        self.can_resume = False
        self.is_stdout = path == Path("-")
        if resume and force:
            raise InvalidRequest("--resume does not go with --force")
        if self.is_stdout:
            if resume or force:
                raise InvalidRequest(f"--{'resume' if resume else 'force'} needs --out")
            return
        if source.is_file(path):
            raise InvalidRequest(f"--out: {path} is the file that --file reads")
        try:
            self._open(resume=resume, force=force)
        except OSError as error:
            why = f"there is no folder {str(path.parent)!r}" if not path.parent.is_dir() else error.strerror
            raise InvalidRequest(f"--out: cannot write {path}: {why}") from None

    def _open(self, *, resume: bool, force: bool) -> None:
        path = self._path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
            self._is_new = True
        except FileExistsError:
            if path.is_dir():
                raise InvalidRequest(f"--out: {path} is a folder") from None
            is_regular = stat.S_ISREG(path.stat().st_mode)
            if is_regular and not (resume or force):
                ways = "--resume goes on behind its last line, --force writes it anew"
                raise InvalidRequest(f"--out: {path} is there already; {ways}") from None
            if resume and not is_regular:
                raise InvalidRequest(f"--resume: {path} is not a regular file") from None
            self._fd = os.open(path, (os.O_RDWR if is_regular else os.O_WRONLY) | _BINARY)
            self.can_resume = is_regular
        else:
            self.can_resume = True
        if not self.can_resume:
            return
        if not _locked(self._fd):
            raise InvalidRequest(f"--out: another run writes {path}")
        self._cut_at = 0
        if resume:
            self.num_there, self._cut_at = _whole_lines(self._fd)

    def write(self, line: str) -> None:
        """Add a line, which has no line feed."""
        if self._fd is None:
            show.emit(line)
            return
        # Half a character, which a line of JSON can name, goes back as it came: by its escape.
        rest = memoryview(f"{line}\n".encode(errors="backslashreplace"))
        try:
            if self._cut_at is not None:
                os.ftruncate(self._fd, self._cut_at)
                os.lseek(self._fd, 0, os.SEEK_END)
                self._cut_at = None
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            raise Error(f"--out: cannot write {self._path}: {error.strerror}") from None

    def finish(self) -> None:
        """Leave the file as a whole run leaves it, even if there was no line to write."""
        if self._fd is not None and self._cut_at is not None:
            os.ftruncate(self._fd, self._cut_at)
            self._cut_at = None
        self._is_new = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._fd is None:
            return
        if self._is_new and self._cut_at is not None:  # nothing was written: the next run shall find nothing
            self._path.unlink(missing_ok=True)
        os.close(self._fd)


def _whole_lines(fd: int) -> tuple[int, int]:
    """Count the lines that have an end, and the bytes up to the last one's."""
    number = end = position = 0
    while chunk := os.read(fd, _CHUNK_BYTES):
        if found := chunk.count(b"\n"):
            number += found
            end = position + chunk.rindex(b"\n") + 1
        position += len(chunk)
    return number, end


def _locked(fd: int) -> bool:
    """Keep other runs away from a file; False if one has it. A system without such locks lets all."""
    if sys.platform == "win32":
        return True
    import fcntl  # noqa: PLC0415 - not on every system

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system that has none
        return True
    return True
