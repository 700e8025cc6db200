"""Patterns of ECMA-262 in the notation of a matcher, and the expressions of formats."""

from __future__ import annotations

import re

_SPACE = r"\t\n\x0B\x0C\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}"
_ANY = r"[^\n\r\u{2028}\u{2029}]"
_PARTS = re.compile(
    r"\\u\{[0-9a-fA-F]{1,6}\}|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[pP]\{[\w=]{1,64}\}|\\.|"
    r"\[\^?|\(\?(?:<(?![=!]))?.?|\{[0-9]{1,9}(?:,[0-9]{0,9})?\}|--|.",
    re.DOTALL,
)
_KNOWN_ESCAPES = frozenset("dDwWtnvfr")
# Signs that a matcher's notation reads otherwise: in a class, and escaped.
_CLASS_SIGNS = frozenset("[&~")
_WORD_ENDS = frozenset("<>")


def of_matcher(pattern: str) -> str:
    """Return a pattern in a matcher's notation.

    Raises:
        ValueError: it has what a matcher does not follow, or what readers of patterns do not agree about.
    """
    parts: list[str] = []
    in_class = False
    for part in _PARTS.findall(pattern):
        if in_class:
            parts.append(_in_class(part))
            if part.startswith("[") and len(part) > 1:
                parts[-1] += "^"
        else:
            parts.append(_outside(part))
        if part == "]":
            if in_class and len(parts) > 1 and parts[-2] in ("[", "[^"):
                raise ValueError("an empty class, [] or [^], is not held")
            in_class = False
        elif not in_class:
            in_class = part.startswith("[")
    return "".join(parts)


def _in_class(part: str) -> str:
    if part == "--":
        raise ValueError(r"-- in a class is not held; the sign itself is written \-")
    if part[0] in _CLASS_SIGNS:
        return "\\" + part[0]
    if part.startswith("\\"):
        return _SPACE if part == r"\s" else _escape(part)
    return part


def _outside(part: str) -> str:
    if part.startswith("(?"):
        return _group(part)
    if part.startswith("\\"):
        return f"[{_SPACE}]" if part == r"\s" else _escape(part)
    if part == "{":
        raise ValueError(r"a brace that counts nothing is not held; the sign itself is written \{")
    return _ANY if part == "." else part


def _group(part: str) -> str:
    if part in ("(?=", "(?!", "(?<"):
        raise ValueError("look-around is not held")
    if part.startswith("(?<") or part == "(?:":
        return part
    raise ValueError(f"{part} is not held; groups are written ( or (?: or (?<name>")


def _escape(part: str) -> str:
    r"""An escape, inside a class or outside, but for `\s`."""
    sign = part[1:]
    if sign == "S":
        return f"[^{_SPACE}]"
    if sign in _WORD_ENDS:
        return sign
    if len(sign) > 1 or sign in _KNOWN_ESCAPES or (sign.isascii() and sign and not sign.isalnum()):
        return part
    raise ValueError(f"{part} is not held")


_YEAR = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_LONG_MONTH = r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT_MONTH = r"(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = r"02-(?:0[1-9]|1[0-9]|2[0-8])"
_DATE = rf"(?:{_YEAR}-(?:{_LONG_MONTH}|{_SHORT_MONTH}|{_FEBRUARY})|{_LEAP}-02-29)"
# Without leap seconds: only some minutes have one.
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
# Two hyphens at the third and fourth place mark a name in other letters, whose spelling has rules of its own.
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9]|[a-zA-Z0-9-](?:[a-zA-Z0-9]|-[a-zA-Z0-9])(?:[a-zA-Z0-9-]{0,26}[a-zA-Z0-9])?)?"
# Eight labels of up to 31 characters: a name has at most 253.
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL}){{0,7}}"
_ATOM = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"

EXPRESSIONS = {
    "date": rf"^{_DATE}$",
    "time": rf"^{_TIME}$",
    "date-time": rf"^{_DATE}[tT]{_TIME}$",
    "hostname": rf"^{_HOSTNAME}$",
    "email": rf"^{_ATOM}(?:\.{_ATOM}){{0,2}}@{_HOSTNAME}$",
}
"""Expressions of those that a matcher's own would be too wide for: February has 29 days in some years."""

BUILT_IN = frozenset(("duration", "ipv4", "ipv6", "uri", "uuid"))
"""Those that a matcher knows by itself."""
