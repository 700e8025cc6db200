"""Where the tokens of a text stand in it, in whole characters. A normaliser may make one of several code points.

For example, a normaliser makes "é" of "e" + U+0301. The library then says that the token of "é" ends before U+0301, so
no token stands for U+0301. Such code points are given back to their token here. The server does the same.
"""

import unicodedata

import tokenizers
from tokenizers import Regex, pre_tokenizers

Place = tuple[int, int]
"""The code points [start, end) of a text."""

# As people count them, with their marks and joiners: extended grapheme clusters of Unicode.
_CHARACTERS = pre_tokenizers.Split(Regex(r"\X"), "isolated")
# No rule of a normaliser is taken to replace more code points than these.
_MAX_REPLACED = 16


class Offsets:
    """Finds the places of a tokenizer's tokens. Thread-safe."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        """Take the normaliser of a tokenizer, if it has one."""
        self._tokenizer = tokenizer
        self._normalizer = tokenizer.normalizer
        # What it puts before any text.
        self._prefix = self._normalized("x").partition("x")[0]
        self._added = frozenset(tokenizer.get_added_tokens_decoder())
        self._forgets = self._normalizer is not None and b'"Precompiled"' in self._normalizer.__getstate__()

    def of(self, text: str, encoding: tokenizers.Encoding) -> list[Place]:
        """Return the places of all tokens of a text: the library's, with the code points that are that token's alone.

        These are the marks and joiners of its last character, and what the normaliser made one with it. A code point
        that another token stands for is never taken, nor is white space. A place of no text stays as it is.
        """
        given = self._offsets(text, encoding)
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        reached = 0
        characters = None
        for start, end in [*sorted({place for place in given if place[0] < place[1]}), (len(text), len(text))]:
            if text[reached:start].strip():
                if characters is None:
                    characters = {first for _, (first, _) in _CHARACTERS.pre_tokenize_str(text)}
                ends[reached] = self._end(text, reached, start, characters)
                starts[start] = self._start(text, ends[reached], start, characters)
            reached = max(reached, end)
        return [(starts.get(start, start), ends.get(end, end)) if start < end else (start, end) for start, end in given]

    def _offsets(self, text: str, encoding: tokenizers.Encoding) -> list[Place]:
        """The library's, but for one bug: its Precompiled forgets what it deletes where a text begins.

        So it does behind an added token that the text spells. All that follows would be placed as many code points too
        early. The text is read once more without them.
        """
        offsets: list[Place] = encoding.offsets
        if not self._forgets:
            return offsets
        beginnings = {0, *(end for id_, (_, end) in zip(encoding.ids, offsets, strict=True) if id_ in self._added)}
        deleted = {each for each in set(text) if not self._normalized(each)}
        kept = []
        deletes = False
        for index, each in enumerate(text):
            deletes = each in deleted and (deletes or index in beginnings)
            if not deletes:
                kept.append(index)
        if len(kept) == len(text):
            return offsets
        again = self._tokenizer.encode_batch(["".join(text[index] for index in kept)])[0]
        if again.ids != encoding.ids:
            return offsets
        return [(kept[start], kept[end - 1] + 1) if start < end else (start, end) for start, end in again.offsets]

    def _end(self, text: str, reached: int, stop: int, characters: set[int]) -> int:
        """Where a place really ends that has `reached` so far, at `stop` at the latest."""
        end = reached
        # A mark behind white space belongs to no character.
        while text[reached - 1 : reached].strip() and end < stop and not text[end].isspace():
            mark = end not in characters or unicodedata.category(text[end]).startswith("M")
            if not mark and not self._become_one(text[reached - 1 : end], text[end]):
                break
            end += 1
        return end

    def _start(self, text: str, stop: int, start: int, characters: set[int]) -> int:
        """Where a place really starts that has `start` so far, at `stop` at the earliest."""
        first = start
        while first > max(stop, start - _MAX_REPLACED) and not text[first - 1].isspace():
            first -= 1
        for index in range(first, start if start < len(text) else first):
            same_character = characters.isdisjoint(range(index + 1, start + 1))
            if same_character or self._become_one(text[index], text[index + 1 : start + 1]):
                return index
        return start

    def _become_one(self, part: str, rest: str) -> bool:
        together = self._normalized(part + rest).removeprefix(self._prefix)
        return together != "".join(self._normalized(each).removeprefix(self._prefix) for each in (part, rest))

    def _normalized(self, text: str) -> str:
        normalized: str = self._normalizer.normalize_str(text) if self._normalizer else text
        return normalized
