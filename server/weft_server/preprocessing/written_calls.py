"""Reads calls of functions out of a model's text, as it comes. What does not begin as a call of a known one is text.

A call is known by its beginning: its name, and the brace that opens its arguments. From there on they are given as they
come, so an answer that is cut off has the beginning of them. They are what the model wrote, and may be no JSON.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


class CallName(NamedTuple):
    """A call begins."""

    name: str


class CallArguments(NamedTuple):
    """A piece of the arguments of the call that began last."""

    text: str


class WrittenCall(NamedTuple):
    """A call. `arguments` is a JSON object as the model wrote it."""

    name: str
    arguments: str


Piece: TypeAlias = str | CallName | CallArguments


class _Form(NamedTuple):
    """How calls look. Without marks around them an answer is one call.

    `beginning` is a call up to the brace that opens its arguments, and its name is a group.
    """

    begin: str
    end: str
    arguments: str
    beginning: re.Pattern[str]


# A function's name has 64 characters at most.
_HERMES = re.compile(r'\s*<tool_call>\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.){1,64}")\s*,\s*"arguments"\s*:\s*(?=\{)')
_LLAMA3 = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.){1,64}")\s*,\s*"parameters"\s*:\s*(?=\{)')
_FORMS = {
    "hermes": _Form("<tool_call>", "</tool_call>", "arguments", _HERMES),
    "llama3": _Form("", "", "parameters", _LLAMA3),
}


def reader_of(call_format: str, names: Collection[str]) -> CallReader | None:
    """Return what reads one answer of a model with this Model.call_format, or None where that is not known.

    `names` are those of the functions that may be called.
    """
    form = _FORMS.get(call_format)
    return CallReader(form, names) if form else None


def calls_in(pieces: Iterable[Piece]) -> list[WrittenCall]:
    """Return the calls among what was read."""
    calls: list[tuple[str, list[str]]] = []
    for each in pieces:
        if isinstance(each, CallName):
            calls.append((each.name, []))
        elif isinstance(each, CallArguments):
            calls[-1][1].append(each.text)
    return [WrittenCall(name, "".join(arguments)) for name, arguments in calls]


def call_id(request_id: str, rank: int, number: int) -> str:
    """Return what names a call: of which answer of a request, and which call of that it is."""
    return f"call-{request_id}-{rank}-{number}"


class CallReader:
    """Takes the text of one answer. All texts and calls that it gives are those of the answer, in its order.

    White space around a call is not the answer's.
    """

    def __init__(self, form: _Form, names: Collection[str]) -> None:
        self._form, self._names = form, names
        self._held = ""
        self._is_behind_call = False
        self._object = _ObjectEnd()
        # What may stand behind the arguments, in order.
        self._left: list[str] = []
        # What looks at what is held: it takes something away, lets another look, or waits.
        self._state = self._text if form.begin else self._head

    def push(self, text: str) -> Iterator[Piece]:
        """Take a piece. Yields what no later piece can change."""
        self._held += text
        yield from self._read(is_end=False)

    def finish(self) -> Iterator[Piece]:
        """Yield the rest, because no more comes."""
        yield from self._read(is_end=True)

    def _read(self, *, is_end: bool) -> Iterator[Piece]:
        before = None
        while before != (now := (len(self._held), self._state)):
            before = now
            yield from self._state(is_end=is_end)

    def _text(self, *, is_end: bool) -> Iterator[Piece]:
        begin = self._form.begin
        at = self._held.find(begin) if begin else -1
        if at >= 0:
            self._state = self._head
        elif begin and not is_end:
            at = len(self._held) - _partial(self._held, begin)
        else:
            yield from self._said(len(self._held))
            return
        # The white space before what may be a call waits too.
        yield from self._said(len(self._held[:at].rstrip()))

    def _head(self, *, is_end: bool) -> Iterator[Piece]:
        start = len(self._held) - len(self._held.lstrip()) + len(self._form.begin)
        if begins := self._form.beginning.match(self._held):
            name = _string(begins[1])
            if name in self._names:
                self._held, self._state = self._held[begins.end() :], self._arguments
                self._object = _ObjectEnd()
                yield CallName(name)
                return
        elif self._held[start:].lstrip()[:1] in {"", "{"}:
            end = self._end_of_block(is_end=is_end)
            if end < 0 and not is_end:
                return
            if call := self._whole(self._held[start:end]) if end >= 0 else None:
                self._held, self._state = self._held[end:], self._tail
                self._left = [self._form.end]
                yield CallName(call.name)
                yield CallArguments(call.arguments)
                return
        # Here is none. There may be one behind.
        self._state = self._text
        yield from self._said(start)

    def _arguments(self, *, is_end: bool) -> Iterator[Piece]:  # noqa: ARG002 - whoever cuts them off leaves a part
        size = self._object.take(self._held)
        if size:
            yield CallArguments(self._held[:size])
        self._held = self._held[size:]
        if self._object.is_over:
            self._state, self._left = self._tail, ["}", self._form.end]

    def _tail(self, *, is_end: bool) -> Iterator[Piece]:
        while self._left:
            rest, wanted = self._held.lstrip(), self._left[0]
            if wanted == "}" and rest.startswith(","):
                # More fields, which nobody asked for.
                end = self._end_of_block(is_end=is_end)
                if end < 0 and not is_end:
                    return
                self._held = self._held[end:] if end >= 0 else ""
            elif wanted.startswith(rest) and rest != wanted and not is_end:
                return
            elif rest.startswith(wanted):
                self._held = rest[len(wanted) :]
            self._left.pop(0)
        self._state, self._is_behind_call = self._text, True
        yield from ()

    def _end_of_block(self, *, is_end: bool) -> int:
        """Where the mark of the end stands, or -1 as long as that is not known."""
        if self._form.end:
            return self._held.find(self._form.end)
        return len(self._held) if is_end else -1

    def _said(self, size: int) -> Iterator[str]:
        """So many characters, without the white space that a call left behind."""
        text, self._held = self._held[:size], self._held[size:]
        if self._is_behind_call:
            text = text.lstrip()
            self._is_behind_call = not text
        if text:
            yield text

    def _whole(self, text: str) -> WrittenCall | None:
        """A call whose fields stand in another order."""
        try:
            fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            name = msgspec.json.decode(fields["name"], type=str)
            arguments = fields[self._form.arguments]
            msgspec.json.decode(arguments, type=dict)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError, KeyError):
            return None
        return WrittenCall(name, bytes(arguments).decode()) if name in self._names else None


class _ObjectEnd:
    """Finds the brace that closes an object, or what no object has. The text comes in pieces, the first brace first."""

    def __init__(self) -> None:
        self.is_over = False
        self._depth = 0
        self._in_string = self._is_escaped = False

    def take(self, text: str) -> int:
        """Return how many of these characters belong to it."""
        for at, each in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._in_string:
                self._is_escaped, self._in_string = each == "\\", each != '"'
            elif each == "<":
                self.is_over = True
                return at
            else:
                self._in_string = each == '"'
                self._depth += (each in "{[") - (each in "}]")
                if not self._depth:
                    self.is_over = True
                    return at + 1
        return len(text)


def _partial(text: str, mark: str) -> int:
    """How many characters at a text's end may be the beginning of a mark."""
    return next((size for size in range(len(mark) - 1, 0, -1) if text.endswith(mark[:size])), 0)


def _string(text: str) -> str:
    """A text in JSON, or nothing for what is none."""
    try:
        return str(json.loads(text))
    except ValueError:
        return ""
