"""Token ids to text as they come. What was given is never taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.preprocessing.detokenizer import Detokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_server.preprocessing.tokenizer import Tokenizer


class TextStream:
    """An answer's text as its tokens come, ending before the first stop string.

    The first token that completes a stop string ends the text before the earliest stop string in it.

    Attributes:
        stopped: whether a stop string came up. Tokens after it are ignored.
        tokens_used: how many tokens were taken, up to and with the one that completed a stop string.
    """

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...] = ()) -> None:
        self.stopped = False
        self.tokens_used = 0
        self._detokenizer = Detokenizer(tokenizer.vocabulary)
        self._stop = stop
        # All beginnings of stop strings, longest first. Text that ends in one is held back.
        self._beginnings = tuple(sorted({s[:end] for s in stop for end in range(1, len(s))}, key=len, reverse=True))
        self._held = ""
        self._given: list[str] = []

    @property
    def text(self) -> str:
        """All text given so far."""
        return "".join(self._given)

    def push(self, ids: Iterable[int]) -> str:
        """Take tokens. Returns the new text in whole characters, or nothing when nothing is settled."""
        deltas = []
        for id_ in ids:
            if self.stopped:
                break
            self.tokens_used += 1
            deltas.append(self._take(self._detokenizer.step(id_)))
        return self._give("".join(deltas))

    def finish(self) -> str:
        """Return the text that waited for a next token, because none comes."""
        if self.stopped:
            return ""
        delta = self._take(self._detokenizer.finish()) + self._held
        self._held = ""
        return self._give(delta)

    def _take(self, new: str) -> str:
        if not new:
            return ""
        text = self._held + new
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        held = 0
        if self._beginnings and text.endswith(self._beginnings):
            held = next(len(beginning) for beginning in self._beginnings if text.endswith(beginning))
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def _give(self, delta: str) -> str:
        if delta:
            self._given.append(delta)
        return delta
