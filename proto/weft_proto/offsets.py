"""Where the tokens of a text stand in it: whole characters, also where a normaliser composed them.

For example, a normaliser makes "é" of "e" + U+0301. The library places it at one of its two code points: the token of
"é" ends before U+0301. Then no token stands for U+0301. Such code points are given back to their token here.
"""

import re
import unicodedata
from bisect import bisect_right

import tokenizers
from tokenizers import Regex, pre_tokenizers

Place = tuple[int, int]
"""The code points [start, end) of a text."""

# Characters as people count them, with their marks and joiners: extended grapheme clusters of Unicode.
_CHARACTERS = pre_tokenizers.Split(Regex(r"\X"), "isolated")
# Two regional indicators are one character: a flag. The library's expression looks back over all of them at each one.
# It is shown letters with marks instead, which it joins in the same way.
_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]{2}")
_INDICATOR = re.compile("[\U0001f1e6-\U0001f1ff]")
_INDICATORS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
# We assume that no rule of a normaliser replaces more code points than these.
_MAX_REPLACED = 16
# We assume that no character has more marks and joiners. Unicode's own limit for text in a stream is 30 marks.
_MAX_CHARACTER = 64


class Offsets:
    """Finds the places of a tokenizer's tokens. Thread-safe."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        """Take the normaliser of a tokenizer, if it has one."""
        self._tokenizer = tokenizer
        self._normalizer = tokenizer.normalizer
        # What the normaliser puts before any text.
        self._prefix = self._normalized("x").partition("x")[0]
        self._added = frozenset(tokenizer.get_added_tokens_decoder())
        self._forgets = self._normalizer is not None and b'"Precompiled"' in self._normalizer.__getstate__()

    def of(self, text: str, encoding: tokenizers.Encoding) -> list[Place]:
        """Return the places of all tokens of a text.

        A place is the library's, and the code points that belong to it alone. Those are the marks and joiners of its
        last character, and what the normaliser made one with it. It never takes white space, nor a code point that
        another token stands for. A place of no text stays as it is.
        """
        given = self._offsets(text, encoding)
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        reached, characters = 0, None
        # They come nearly in order. So this sorts them in one pass, where a set would mix them first: a long text would
        # hold the interpreter for a twentieth of a second.
        places = sorted(dict.fromkeys(place for place in given if place[0] < place[1]))
        # Of a text that is cut, only what is near the tokens is looked at.
        stop = min(len(text), max((end for _, end in places), default=0) + _MAX_CHARACTER)
        for start, end in [*places, (stop, stop)]:
            if text[reached:start].strip():
                if characters is None:
                    characters = _characters_near(text, places[0][0] if places else stop, stop)
                ends[reached] = self._end(text, reached, start, characters)
                if start < stop:
                    starts[start] = self._start(text, ends[reached], start, characters)
            reached = max(reached, end)
        return [(starts.get(start, start), ends.get(end, end)) if start < end else (start, end) for start, end in given]

    def _offsets(self, text: str, encoding: tokenizers.Encoding) -> list[Place]:
        """The library's places, with one bug mended.

        Its normaliser Precompiled forgets the code points that it deletes at the beginning of a text. It forgets them
        too behind an added token that the text spells. All tokens that follow would be placed too early by that many
        code points. So the text is read once more without them.
        """
        offsets: list[Place] = encoding.offsets
        if not self._forgets:
            return offsets
        beginnings = {0, *(end for id_, (_, end) in zip(encoding.ids, offsets, strict=True) if id_ in self._added)}
        deleted = self._deleted(text, beginnings)
        if not deleted:
            return offsets
        firsts = [0, *(index + 1 for index in deleted)]
        kept = "".join(text[first:last] for first, last in zip(firsts, [*deleted, len(text)], strict=True))
        again = self._tokenizer.encode_batch([kept])[0]
        if again.ids != encoding.ids:
            return offsets
        # Where each of them would stand in what is kept.
        gaps = [index - before for before, index in enumerate(deleted)]

        def back(place: int) -> int:
            return place + bisect_right(gaps, place)

        return [(back(start), back(end - 1) + 1) if start < end else (start, end) for start, end in again.offsets]

    def _deleted(self, text: str, beginnings: set[int]) -> list[int]:
        """Which code points behind these beginnings the normaliser deletes, in order."""
        is_kept: dict[str, bool] = {}
        found: list[int] = []
        for first in sorted(beginnings):
            index = max(first, found[-1] + 1) if found else first
            while index < len(text):
                each = text[index]
                if each not in is_kept:
                    is_kept[each] = bool(self._normalized(each))
                if is_kept[each]:
                    break
                found.append(index)
                index += 1
        return found

    def _end(self, text: str, reached: int, stop: int, characters: set[int]) -> int:
        """Where a place really ends. So far it ends at `reached`. It ends at `stop` at the latest."""
        end = reached
        # A mark behind white space belongs to no character.
        while text[reached - 1 : reached].strip() and end < stop and not text[end].isspace():
            mark = end not in characters or unicodedata.category(text[end]).startswith("M")
            if not mark and not self._become_one(text[reached - 1 : end], text[end]):
                break
            end += 1
        return end

    def _start(self, text: str, stop: int, start: int, characters: set[int]) -> int:
        """Where a place really starts. So far it starts at `start`. It starts at `stop` at the earliest."""
        first = start
        while first > max(stop, start - _MAX_REPLACED) and not text[first - 1].isspace():
            first -= 1
        for index in range(first, start):
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


def _characters_near(text: str, first: int, stop: int) -> set[int]:
    """Where the characters of a text begin, from what belongs to its first token up to `stop`."""
    start = max(0, first - _MAX_REPLACED - _MAX_CHARACTER)
    # Flags are paired from the first indicator on.
    start -= (start - len(text[:start].rstrip(_INDICATORS))) % 2
    return {start + index for index in _characters(text[start:stop])}


def _characters(text: str) -> set[int]:
    """Where the characters of a text begin."""
    shown = _INDICATOR.sub("a", _FLAG.sub("a\u0301", text))
    return {first for _, (first, _) in _CHARACTERS.pre_tokenize_str(shown)}
