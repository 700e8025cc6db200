"""Where the sentences of a text end, by the marks of Unicode and without knowing the language.

A wrong cut makes two bad translations, and a missing one a long sentence. So where it is not clear, there is no cut:
`Dr. No`, `J. Smith`, `3.14`, `"Why?" he asked`.
"""
# ruff: noqa: RUF001 - marks of many scripts look like those of ASCII

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# These end a sentence wherever they stand. They are of Chinese and Japanese, Devanagari, Arabic, Urdu, Armenian,
# Ethiopic, Burmese and Khmer.
_CLEAR = "。！？｡।॥؟۔։።፧፨။។"
# These do if white space follows, and then no small letter.
_UNCLEAR = ".!?…‼⁇⁈⁉"
_CLOSING = "\"'”’»›)]}」』）】》〉"
_OPENING = "\"'“‘„«‹([{「『（【《〈¿¡-–—•*"
_LINE_BREAKS = frozenset("\n\r\v\f\x85\u2028\u2029")
_MARKS = re.compile(rf"(?P<mark>[{_CLEAR}{_UNCLEAR}]+[{re.escape(_CLOSING)}]*)|(?P<space>\s+)")
# Where a sentence that is too long may be cut: behind these, before white space or anywhere.
_CLAUSES = re.compile(r"[,;:—–]\s+|[、，；：،؛]\s*")
_SPACES = re.compile(r"\s+")
# Words that are written with a point and mostly stand before a name or a number.
_SHORT = frozenset((
    "adm", "approx", "bros", "bzw", "ca", "capt", "cf", "col", "dept", "dott", "dr", "dra", "ext", "fig", "figs",
    "fr", "gen", "gov", "hon", "hr", "hrsg", "jr", "ltda", "mgr", "mlle", "mme", "mr", "mrs", "ms", "mt", "nos", "nr",
    "núm", "ph", "pp", "pres", "prof", "prov", "pág", "rep", "rev", "sen", "sgt", "sr", "sra", "srta", "st", "str",
    "tel", "univ", "usw", "vgl", "vol", "vs",
))  # fmt: skip
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
_ORDINAL = re.compile(r"\d{1,2}")
_LOOK = 32


class Part(NamedTuple):
    """A part of a text, and the white space before it."""

    gap: str
    text: str


def sentences(text: str) -> list[Part]:
    """Return the sentences of a text. Joined with their gaps they are the text, without white space around it."""
    end = len(text.rstrip())
    start = len(text) - len(text.lstrip())
    return list(_parts(text, start, end, _ends(text)))


def divided(sentence: Part, fits: Callable[[str], bool], most_chars: int) -> Iterator[Part]:
    """Cut a sentence into the fewest parts that fit: behind its clauses, and where one is too long, between words.

    No text of over `most_chars` characters fits. A part without any white space is left as it is, and may not fit.
    """
    gap, text = sentence
    start = 0
    while start < len(text):
        # No part can end behind this window. One character more says whether its last word goes on.
        window = text[start : start + most_chars + 1]
        is_last = start + len(window) == len(text)
        if is_last and fits(window):
            yield Part(gap, window)
            return
        # The point stands for what goes on: a pattern at the end of the window is not at the end of the text.
        rest = window if is_last else window + "."
        end, begin = _longest(rest, _CLAUSES, fits) or _longest(rest, _SPACES, fits) or _word(text[start:])
        yield Part(gap, text[start : start + end])
        # White space may go on behind the window.
        more = _SPACES.match(text, start + begin)
        following = more.end() if more else start + begin
        gap, start = text[start + end : following], following


def _ends(text: str) -> Iterator[tuple[int, int]]:
    """Yield where a sentence ends, and where the next one begins."""
    mark: re.Match[str] | None = None
    for found in _MARKS.finditer(text):
        if found.lastgroup == "mark":
            if mark and mark.end() < found.start() and _is_clear(mark[0]):
                yield mark.end(), mark.end()
            mark = found
            continue
        follows = mark is not None and mark.end() == found.start()
        if mark and not follows and _is_clear(mark[0]):
            yield mark.end(), mark.end()
        breaks = not _LINE_BREAKS.isdisjoint(found[0])
        if breaks or (follows and mark and _ends_sentence(text, mark, found.end())):
            yield found.span()
        mark = None
    if mark and _is_clear(mark[0]):
        yield mark.end(), mark.end()


def _parts(text: str, start: int, end: int, cuts: Iterator[tuple[int, int]]) -> Iterator[Part]:
    gap = ""
    for stop, begin in cuts:
        if start < stop < end:
            yield Part(gap, text[start:stop])
            gap, start = text[stop:begin], begin
    if start < end:
        yield Part(gap, text[start:end])


def _is_clear(mark: str) -> bool:
    return any(each in _CLEAR for each in mark)


def _ends_sentence(text: str, mark: re.Match[str], after: int) -> bool:
    """Whether a mark with white space behind it ends a sentence."""
    if _is_clear(mark[0]):
        return True
    ahead = text[after : after + _LOOK].lstrip(_OPENING)
    if ahead[:1].islower():
        return False
    if mark[0].rstrip(_CLOSING) != ".":
        return True
    before = text[max(0, mark.start() - _LOOK) : mark.start()].split()
    word = before[-1].lstrip(_OPENING) if before else ""
    return not (_INITIALS.fullmatch(word) or _ORDINAL.fullmatch(word) or word.casefold() in _SHORT)


def _longest(text: str, where: re.Pattern[str], fits: Callable[[str], bool]) -> tuple[int, int] | None:
    """Return the last place up to which a text fits: where its part ends, and where the next one begins."""
    places: list[tuple[int, int]] = []
    # Twice as many places each time, so that a text that is far too long is not read as a whole.
    wanted = 1
    for found in where.finditer(text):
        stop = found.start() + len(found[0].rstrip())
        if found.end() == len(text):
            continue
        places.append((stop, found.end()))
        if len(places) == wanted:
            if not fits(text[:stop]):
                break
            wanted *= 2
    count = bisect_right(places, 0, key=lambda place: 0 if fits(text[: place[0]]) else 1)
    return places[count - 1] if count else None


def _word(text: str) -> tuple[int, int]:
    """Where the first word of a text ends, and where the next one begins."""
    found = _SPACES.search(text)
    return found.span() if found else (len(text), len(text))
