"""Decodes one token after another, and gives text as soon as no later token can change it.

A later token can complete a character that several byte tokens share. It can also swallow a space: "foo" and "?" may
join to "foo?".

Byte tokens go through an incremental UTF-8 decoder. Other tokens are decoded by the library, in a short window. The
window begins with a few tokens whose text was given before, because some decoders treat a first token in their own way.
"""

import codecs
from collections.abc import Iterable

from weft_server.preprocessing.vocabulary import Vocabulary

CONTEXT = 4
MAX_WINDOW = 16


class Detokenizer:
    """The text of one answer so far. A token costs about the same however long the answer is."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._last_byte: int | None = None
        self._window: list[int] = []
        self._num_given = 0  # characters of the window's text that were given

    def step(self, id_: int) -> str:
        """Take one token. Returns the text that is now settled."""
        if not self._vocabulary.is_text(id_):
            return ""
        raw = self._vocabulary.raw.get(id_)
        if raw is not None:
            self._last_byte = id_
            return self._end_window() + self._utf8.decode(raw)
        return self._end_bytes() + self._step_window(id_)

    def steps(self, ids: Iterable[int]) -> str:
        """Take several tokens. Returns what single steps would, with one decoding for each window or run of bytes."""
        vocabulary, special = self._vocabulary, self._vocabulary.special
        settled: list[str] = []
        run: list[bytes] = []
        for id_ in ids:
            if id_ in special or id_ not in vocabulary.tokens:
                continue
            raw = vocabulary.raw.get(id_)
            if raw is not None:
                if not run:
                    settled += (self._settle(), self._end_window())
                run.append(raw)
                self._last_byte = id_
                continue
            if run:
                settled.append(self._utf8.decode(b"".join(run)))
                run.clear()
            settled.append(self._end_bytes())
            self._window.append(id_)
            if len(self._window) >= MAX_WINDOW and id_ not in vocabulary.blank:
                settled.append(self._settle())
        return "".join((*settled, self._utf8.decode(b"".join(run)), self._settle()))

    def finish(self) -> str:
        """Return the text that waited for a next token. Half a character becomes U+FFFD."""
        return self._end_window() + self._end_bytes()

    def _step_window(self, id_: int) -> str:
        self._window.append(id_)
        return self._settle()

    def _settle(self) -> str:
        """Return what the window has given since the last time."""
        # A space at the end waits for the next token.
        if not self._window or self._window[-1] in self._vocabulary.blank:
            return ""
        decoded = self._vocabulary.decode(self._window).rstrip(" ")
        text = decoded[self._num_given :]
        self._num_given = max(self._num_given, len(decoded))
        if len(self._window) >= MAX_WINDOW:
            self._window = self._window[-CONTEXT:]
            self._num_given = len(self._vocabulary.decode(self._window).rstrip(" "))
        return text

    def _end_window(self) -> str:
        if not self._window:
            return ""
        text = self._vocabulary.decode(self._window)[self._num_given :]
        self._window, self._num_given = [], 0
        return text

    def _end_bytes(self) -> str:
        if self._last_byte is None:
            return ""
        self._window, self._last_byte = [self._last_byte], None
        self._num_given = len(self._vocabulary.decode(self._window))
        return self._utf8.decode(b"", final=True)
