"""Where the sentences of a text end, by the marks of Unicode and without knowing the language.

A wrong cut makes two bad translations, and a missing one a long sentence. So where it is not clear, there is no cut:
`Dr. No`, `J. Smith`, `3.14`, `No. 5`, `"Why?" he asked`, `「はい。」と言った`.
"""
# ruff: noqa: RUF001 - marks of many scripts look like those of ASCII

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# These end a sentence also where no white space follows. They are of Chinese and Japanese, Devanagari, Arabic, Urdu,
# Armenian, Ethiopic, Burmese and Khmer.
_CLEAR = "。！？｡।॥؟۔։።፧፨။។"
# These do if white space follows, and then no small letter.
_UNCLEAR = ".!?…‼⁇⁈⁉"
_CLOSING = "\"'”’»›)]}」』）】》〉"
_OPENING = "\"'“‘„«‹([{「『（【《〈¿¡-–—•*"
# `«Почему?» — спросил он`
_BEFORE = _OPENING + " \u00a0\u202f"
_BRACKETS = dict(zip(")]}）】", "([{（【", strict=True))
_LINE_BREAKS = frozenset("\n\r\v\f\x85\u2028\u2029")
# In French, a space stands before a closing mark: `« Oui ! » dit-il`.
_MARKS = re.compile(
    rf"(?P<mark>[{_CLEAR}{_UNCLEAR}]+(?:[{re.escape(_CLOSING)}]|[ \u00a0\u202f][»›](?=[\s,.;:]|\Z))*)|(?P<space>\s+)"
)
# Where a sentence that is too long may be cut: behind these, before white space or anywhere.
_CLAUSES = re.compile(r"[,;:—–]\s+|[、，；：،؛]\s*")
_SPACES = re.compile(r"\s+")
# Words that are written with a point and mostly stand before a name: titles, places, units, parts of books, months.
_SHORT = frozenset((
    # English
    "adm", "al", "apr", "approx", "aug", "ave", "blvd", "brig", "bros", "capt", "cf", "cmdr", "co", "col", "corp",
    "cpl", "dec", "dept", "dr", "ed", "eds", "esq", "ext", "feb", "fig", "figs", "ft", "gen", "gov", "hon", "hwy",
    "inc", "jan", "jr", "jul", "jun", "lt", "ltd", "maj", "messrs", "mr", "mrs", "ms", "mt", "mts", "nos", "nov",
    "oct", "ph", "pp", "pres", "prof", "rd", "rep", "rev", "rte", "sen", "sep", "sept", "sgt", "sr", "st", "tel",
    "univ", "viz", "vol", "vs",
    # German, Dutch, the north
    "bijv", "blz", "bspw", "bzw", "ca", "dhr", "dipl", "drs", "evtl", "fr", "geb", "gest", "ggf", "hr", "hrsg",
    "ing", "inkl", "jh", "kl", "mevr", "mio", "mrd", "nr", "str", "usw", "vgl", "zzgl",
    # Spanish, Portuguese, French, Italian, Romanian
    "av", "avda", "avv", "bld", "dott", "dra", "ee", "env", "exmo", "lic", "ltda", "mgr", "mlle", "mme", "núm",
    "pag", "pág", "prov", "sig", "sra", "sras", "sres", "srta", "ste", "ud", "uds", "uu", "éd",
    # Polish, Czech, Turkish, Hungarian
    "godz", "inż", "mjr", "např", "np", "płk", "sv", "tzn", "tzv", "tzw", "ul", "św", "bkz", "vb",
    # Russian, Ukrainian
    "акад", "гл", "гор", "доц", "др", "им", "ім", "инж", "корп", "млн", "млрд", "напр", "обл", "пер", "пл", "пос",
    "пр", "проф", "рис", "руб", "св", "см", "стр", "тел", "тыс", "ул", "вул",
    # Greek, Armenian, Hindi, Marathi, Bengali, Tamil
    "δρ", "κα", "κος", "σελ", "αρ", "դոկ", "पं", "डॉ", "डा", "प्रो", "श्री", "रु", "नं", "कु", "ডা", "ড", "মি",
    "திரு",
))  # fmt: skip
# Initials, which no syllable of Hangul is, and shortened words without a space between: "J", "z.B", "Ph.D", "M.Sc".
_INITIALS = re.compile(r"[^\W\d_가-힣]|(?:[^\W\d_]{1,3}\.)+[^\W\d_]{1,3}")
# The third of May, Henry VIII.
_ORDINAL = re.compile(r"\d{1,2}|[IVXLC]{1,7}")
# What says in Japanese that a question or a cry was a quotation.
_PARTICLES = ("と", "って")
_LOOK = 32


class Sentence(NamedTuple):
    """A part of a text, and the white space before it."""

    gap: str
    text: str


def sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text. Joined with their gaps they are the text, without white space around it."""
    end = len(text.rstrip())
    start = len(text) - len(text.lstrip())
    return list(_parts(text, start, end, _ends(text, start)))


def divided(sentence: Sentence, fits: Callable[[str], bool], most_chars: int) -> Iterator[Sentence]:
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
            yield Sentence(gap, window)
            return
        # The point stands for what goes on: a pattern at the end of the window is not at the end of the text.
        rest = window if is_last else window + "."
        end, begin = _longest(rest, _CLAUSES, fits) or _longest(rest, _SPACES, fits) or _word(text[start:])
        yield Sentence(gap, text[start : start + end])
        # White space may go on behind the window.
        more = _SPACES.match(text, start + begin)
        following = more.end() if more else start + begin
        gap, start = text[start + end : following], following


def _ends(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Yield where a sentence ends, and where the next one begins. The first one begins at `start`."""
    mark: re.Match[str] | None = None
    for found in _MARKS.finditer(text):
        cut = None
        if found.lastgroup == "mark":
            if mark and mark.end() < found.start() and _ends_directly(text, mark):
                cut = mark.end(), mark.end()
            mark = found
        else:
            follows = mark is not None and mark.end() == found.start()
            if mark and not follows and _ends_directly(text, mark):
                yield mark.end(), mark.end()
                start = mark.end()
            breaks = not _LINE_BREAKS.isdisjoint(found[0])
            if breaks or (follows and mark and _ends_sentence(text, start, mark, found.end())):
                cut = found.span()
            mark = None
        if cut:
            yield cut
            start = cut[1]
    if mark and _is_clear(mark[0]):
        yield mark.end(), mark.end()


def _parts(text: str, start: int, end: int, cuts: Iterator[tuple[int, int]]) -> Iterator[Sentence]:
    gap = ""
    for stop, begin in cuts:
        if start < stop < end:
            yield Sentence(gap, text[start:stop])
            gap, start = text[stop:begin], begin
    if start < end:
        yield Sentence(gap, text[start:end])


def _is_clear(mark: str) -> bool:
    return any(each in _CLEAR for each in mark)


def _ends_directly(text: str, mark: re.Match[str]) -> bool:
    """Whether a mark with text directly behind it ends a sentence."""
    if not _is_clear(mark[0]):
        return False
    # `「はい。」と言った`: what was said is part of a sentence.
    return mark[0][-1] not in _CLOSING and not (mark[0][-1] in "！？" and text.startswith(_PARTICLES, mark.end()))


def _ends_sentence(text: str, start: int, mark: re.Match[str], after: int) -> bool:
    """Whether a mark with white space behind it ends a sentence that begins at `start`."""
    ahead = text[after : after + _LOOK]
    first = ahead.lstrip(_BEFORE)[:1]
    closing = mark[0][-1] if mark[0][-1] in _CLOSING else ""
    if closing in _BRACKETS and not text.startswith(_BRACKETS[closing], start):
        # `He came (really!) Monday`: the mark is the bracket's.
        return False
    if closing and closing not in _BRACKETS and first.isalpha() and first.title() == first.lower():
        # No capital tells whether the sentence goes on: `"हाँ।" उसने कहा`.
        return False
    if _is_clear(mark[0]):
        return True
    # Georgian has small letters alone, which are their own title case.
    if first.islower() and first != first.title():
        return False
    return mark[0].rstrip(_CLOSING) != "." or _is_full_stop(text, mark, ahead)


def _is_full_stop(text: str, mark: re.Match[str], ahead: str) -> bool:
    """Whether a point ends a sentence: no short word's, no number's, and none before a number as in `No. 5`."""
    before = text[max(0, mark.start() - _LOOK) : mark.start()].split()
    word = before[-1].lstrip(_OPENING) if before else ""
    is_short = _INITIALS.fullmatch(word) or _ORDINAL.fullmatch(word) or word.casefold() in _SHORT
    return not is_short and not ahead[:1].isdigit()


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
