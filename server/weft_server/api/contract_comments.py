"""The comments of the contracts, which descriptors do not have: read in the files, which lie beside the stubs."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import weft_proto

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT = Path(weft_proto.__file__).parents[1]
_COMMENT = re.compile(r"\s*// ?(.*)")
_BLOCK = re.compile(r"\s*(message|enum|service|oneof) (\w+) \{(\})?$")
_METHOD = re.compile(r"\s*rpc (\w+)\(")
_FIELD = re.compile(r"\s*(?:[\w.<>, ]+ )?(\w+) = \d+[ ;]")
_END = re.compile(r"\s*\}$")


@cache
def comments_of(path: str) -> Mapping[str, str]:
    """Return the comments of a file by the full names of messages, fields, enums, their values, services and methods.

    `path` is the file's as descriptors have it. A value's name stands behind that of its enum. Each comment is one
    line. None where the file does not lie beside the stubs.
    """
    file = _ROOT / path
    return _Reader().read(file.read_text("utf-8")) if file.is_file() else {}


class _Reader:
    """Reads a file as `buf format` leaves it: a line is a comment, or the whole of what the comment is about."""

    def __init__(self) -> None:
        self._package = ""
        # What is open, the innermost last. A oneof's fields are those of its message.
        self._open: list[str] = []
        self._above: list[str] = []
        self._found: dict[str, str] = {}

    def read(self, text: str) -> Mapping[str, str]:
        for line in text.splitlines():
            if comment := _COMMENT.match(line):
                self._above.append(comment[1])
            else:
                self._take(line)
                self._above = []
        return self._found

    def _take(self, line: str) -> None:
        if line.startswith("package "):
            self._package = line.removeprefix("package ").rstrip(";")
        elif block := _BLOCK.match(line):
            self._note(block[2])
            if not block[3]:
                self._open.append("" if block[1] == "oneof" else block[2])
        elif named := _METHOD.match(line) or _FIELD.match(line):
            self._note(named[1])
        elif _END.match(line):
            self._open.pop()

    def _note(self, name: str) -> None:
        full = ".".join([self._package, *filter(None, self._open), name])
        self._found[full] = " ".join(self._above)
