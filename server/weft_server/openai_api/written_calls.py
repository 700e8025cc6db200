"""Reads calls of functions out of a model's text, as it comes: what is no whole call of a known function stays text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft_server.errors import InvalidRequest
from weft_server.openai_api.once import check_once

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_BEGIN, _END = "<tool_call>", "</tool_call>"
# What may be the beginning of _BEGIN at a text's end, longest first.
_BEGINNINGS = tuple(_BEGIN[:end] for end in range(len(_BEGIN) - 1, 0, -1))


class WrittenCall(NamedTuple):
    """A call. `arguments` is a JSON object as the model wrote it."""

    name: str
    arguments: str


class CallReader(ABC):
    """Takes the text of one answer. All texts and calls that it gives are those of the answer, in its order."""

    def __init__(self, names: Collection[str]) -> None:
        """`names` are those of the functions that may be called."""
        self._names = names
        self._held = ""

    @abstractmethod
    def push(self, text: str) -> Iterator[str | WrittenCall]:
        """Take a piece. Yields what no later piece can change."""

    @abstractmethod
    def finish(self) -> Iterator[str | WrittenCall]:
        """Yield the rest, because no more comes."""

    def _call(self, text: str, kind: type[_Hermes | _Llama3]) -> WrittenCall | None:
        try:
            written = msgspec.json.decode(text, type=kind)
            msgspec.json.decode(written.arguments, type=dict)
            check_once(bytes(written.arguments))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError, InvalidRequest):
            return None
        return WrittenCall(written.name, bytes(written.arguments).decode()) if written.name in self._names else None


class _Hermes(msgspec.Struct):
    name: str
    arguments: msgspec.Raw


class _Llama3(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.field(name="parameters")


class HermesReader(CallReader):
    """<tool_call>{"name": ..., "arguments": {...}}</tool_call>, once or several times, with text around them.

    White space around a call is not the answer's.
    """

    _is_behind_call = False

    def push(self, text: str) -> Iterator[str | WrittenCall]:
        """Take a piece, see CallReader."""
        self._held += text
        yield from self._blocks()
        at = self._held.find(_BEGIN)
        if at < 0:
            partial = next((each for each in _BEGINNINGS if self._held.endswith(each)), "")
            at = len(self._held) - len(partial)
        # The white space before what may be a call waits too.
        settled = self._trimmed(self._held[:at].rstrip())
        if settled:
            yield settled
            self._held = self._held[len(self._held[:at].rstrip()) :]

    def finish(self) -> Iterator[str | WrittenCall]:
        """Yield the rest, see CallReader."""
        yield from self._blocks()
        if rest := self._trimmed(self._held):
            yield rest
        self._held = ""

    def _blocks(self) -> Iterator[str | WrittenCall]:
        while (begin := self._held.find(_BEGIN)) >= 0 and (end := self._held.find(_END, begin)) >= 0:
            call = self._call(self._held[begin + len(_BEGIN) : end], _Hermes)
            # An answer may speak of the mark before it calls.
            if call is None and (last := self._held.rfind(_BEGIN, begin + 1, end)) > 0:
                call, begin = self._call(self._held[last + len(_BEGIN) : end], _Hermes), last
            end += len(_END)
            said = self._trimmed(self._held[:begin].rstrip() if call else self._held[:end])
            self._held = self._held[end:]
            if said:
                yield said
            if call:
                self._is_behind_call = True
                yield call

    def _trimmed(self, text: str) -> str:
        """A text without the white space that a call left behind."""
        if self._is_behind_call:
            text = text.lstrip()
            self._is_behind_call = not text
        return text


class Llama3Reader(CallReader):
    """{"name": ..., "parameters": {...}}, and nothing else."""

    _is_text = False

    def push(self, text: str) -> Iterator[str | WrittenCall]:
        """Take a piece, see CallReader."""
        self._held += text
        self._is_text |= self._held.lstrip()[:1] not in {"", "{"}
        if self._is_text and self._held:
            yield self._held
            self._held = ""

    def finish(self) -> Iterator[str | WrittenCall]:
        """Yield the rest, see CallReader."""
        if self._held:
            yield self._call(self._held, _Llama3) or self._held
        self._held = ""


READERS: dict[str, type[CallReader]] = {"hermes": HermesReader, "llama3": Llama3Reader}
