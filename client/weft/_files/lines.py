"""The lines of a file or a pipe: bytes between line feeds, numbered from 1."""

import asyncio
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from weft.exceptions import InvalidRequest

# A longer line is refused: it can't be held. No server takes so long a text.
MAX_LINE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"
# How many chunks of a pipe may wait to be read.
_NUM_WAITING = 4


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end. `end` is how many bytes of the input there are up to its end."""

    number: int
    data: bytes
    end: int
    is_too_long: bool = False

    def text(self) -> str:
        """Return its text; raises InvalidRequest if it is too long, or not UTF-8."""
        if self.is_too_long:
            raise InvalidRequest(f"the line has more than {MAX_LINE_BYTES:,} bytes", reason="LINE_TOO_LONG")
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"not UTF-8: {error.reason} at byte {error.start}", reason="NOT_UTF8") from None


class LineSplitter:
    """Makes lines of chunks. A last line without an end is a line too, and one of no bytes there is none.

    `number` is that of the last line so far, from 1 on.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._num_bytes = 0
        self.number = 0
        self._end = 0

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that end in a chunk."""
        *ends, rest = chunk.split(b"\n")
        for part in ends:
            self._keep(part)
            yield self._line(1)
        self._keep(rest)

    def last(self) -> Iterator[Line]:
        """Yield the last line, if it has no end."""
        if self._num_bytes:
            yield self._line(0)

    def _keep(self, part: bytes) -> None:
        self._num_bytes += len(part)
        if self._num_bytes <= MAX_LINE_BYTES:
            self._parts.append(part)
        else:
            self._parts.clear()

    def _line(self, num_end_bytes: int) -> Line:
        self.number += 1
        self._end += self._num_bytes + num_end_bytes
        data = b"".join(self._parts)
        is_too_long = self._num_bytes > MAX_LINE_BYTES
        self._parts.clear()
        self._num_bytes = 0
        if self.number == 1:
            data = data.removeprefix(_BOM)
        return Line(self.number, data.removesuffix(b"\r"), self._end, is_too_long)


class Source:
    """Where lines come from: a file, or stdin for a dash. `num_bytes` is None where nobody knows it."""

    def __init__(self, path: Path) -> None:
        self.name = "stdin" if path == Path("-") else str(path)
        try:
            self._fd = _stdin() if path == Path("-") else os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            status = os.fstat(self._fd)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(None, "Is a directory")
        except OSError as error:
            raise InvalidRequest(f"--file: cannot read {self.name}: {error.strerror}") from None
        self._is_regular = stat.S_ISREG(status.st_mode)
        self.num_bytes = status.st_size if self._is_regular else None

    def is_file(self, path: Path) -> bool:
        """Whether it is the file of this name."""
        try:
            return os.path.samestat(os.fstat(self._fd), path.stat())
        except OSError:
            return False

    def lines(self, *, behind: int) -> Iterator[Line] | AsyncIterator[Line]:
        """Give the lines behind the first `behind`; raises InvalidRequest if there are not that many.

        Those of a pipe come as they come: nobody else waits for them.
        """
        return self._read(behind) if self._is_regular else self._read_pipe(behind)

    def _read(self, behind: int) -> Iterator[Line]:
        splitter = LineSplitter()
        while chunk := os.read(self._fd, _CHUNK_BYTES):
            yield from _behind(behind, splitter.feed(chunk))
        yield from _behind(behind, splitter.last())
        self._check(splitter.number, behind)

    async def _read_pipe(self, behind: int) -> AsyncIterator[Line]:
        splitter = LineSplitter()
        chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        room = threading.Semaphore(_NUM_WAITING)
        put = _from_thread(asyncio.get_running_loop(), chunks)
        # A thread of our own: an executor's would be waited for at the end, until somebody types a line.
        threading.Thread(target=_read_on, args=(self._fd, put, room), daemon=True).start()
        while chunk := await chunks.get():
            if isinstance(chunk, OSError):
                raise InvalidRequest(f"--file: cannot read {self.name}: {chunk.strerror}")
            room.release()
            for line in _behind(behind, splitter.feed(chunk)):
                yield line
        for line in _behind(behind, splitter.last()):
            yield line
        self._check(splitter.number, behind)

    def _check(self, number: int, behind: int) -> None:
        if number < behind:
            raise InvalidRequest(f"--resume: there are answers to {behind} lines, and {self.name} has {number}")


def _behind(number: int, lines: Iterable[Line]) -> Iterator[Line]:
    return (line for line in lines if line.number > number)


def _stdin() -> int:
    if sys.stdin is None:
        raise InvalidRequest("stdin is closed")
    return sys.stdin.fileno()


def _from_thread(
    loop: asyncio.AbstractEventLoop, chunks: "asyncio.Queue[bytes | OSError]"
) -> Callable[[bytes | OSError], None]:
    def put(chunk: bytes | OSError) -> None:
        loop.call_soon_threadsafe(chunks.put_nowait, chunk)

    return put


def _read_on(fd: int, put: Callable[[bytes | OSError], None], room: threading.Semaphore) -> None:
    """Read until the end, which is a chunk of no bytes; not through sys.stdin, whose lock would outlive us at exit."""
    try:
        while True:
            room.acquire()
            try:
                chunk: bytes | OSError = os.read(fd, _CHUNK_BYTES)
            except OSError as error:
                chunk = error
            put(chunk)
            if not chunk or isinstance(chunk, OSError):
                return
    except RuntimeError:  # the loop is closed: nobody reads any more
        return
