"""Reads an answer in channels, as gpt-oss writes it ("harmony"): what it thinks, and what it says at last.

An answer goes on behind `<|start|>assistant`: `<|channel|>analysis<|message|>So ...<|end|><|start|>assistant<|channel|>
final<|message|>Paris.` What stands before the first mark of another answer is said.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

HARMONY = "harmony"
"""What Model.call_format is then."""
_MARKS = ("<|start|>", "<|end|>", "<|channel|>", "<|constrain|>", "<|message|>")
_MARK = re.compile(r"<\|(?:start|end|channel|constrain|message)\|>")
_LONGEST = max(map(len, _MARKS))
_FINAL = "final"


class Said(NamedTuple):
    """A piece of text, and whether it is of the answer, or was thought before."""

    text: str
    is_final: bool


class ChannelReader:
    """Reads one answer, as it comes."""

    def __init__(self) -> None:
        """Begin with what no channel is named for: it is said."""
        self._held, self._channel = "", _FINAL
        # None between `<|message|>` and the next mark; before, what was read of the message's head.
        self._head: str | None = None
        # Otherwise it is who writes.
        self._names_channel = False

    def push(self, text: str) -> list[Said]:
        """Return what is known of a text's next piece. The beginning of a mark is held back."""
        text = self._held + text
        pieces: list[Said] = []
        start = 0
        for mark in _MARK.finditer(text):
            pieces += self._take(text[start : mark.start()])
            self._turn(mark[0])
            start = mark.end()
        known = max(start, len(text) - _begun_mark(text))
        pieces += self._take(text[start:known])
        self._held = text[known:]
        return pieces

    def finish(self) -> list[Said]:
        """Return what was held back: no mark came of it."""
        held, self._held = self._held, ""
        return list(self._take(held))

    def _take(self, text: str) -> Iterable[Said]:
        if self._head is not None:
            self._head += text
        elif text:
            yield Said(text, self._channel == _FINAL)

    def _turn(self, mark: str) -> None:
        if mark == "<|message|>":
            # `commentary to=functions.name`: the channel is the first word.
            self._channel = next(iter((self._head or "").split()), _FINAL) if self._names_channel else _FINAL
            self._head = None
        elif mark != "<|constrain|>":
            self._head, self._names_channel = "", mark == "<|channel|>"


def _begun_mark(text: str) -> int:
    """Return how many characters at the end of a text may begin a mark."""
    for count in range(min(_LONGEST - 1, len(text)), 0, -1):
        if any(mark.startswith(text[-count:]) for mark in _MARKS):
            return count
    return 0
