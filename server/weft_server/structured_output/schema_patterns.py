r"""Patterns of a JSON Schema, which are of ECMA-262, in the notation of a matcher, which is another one.

For example, `.` is no line feed, carriage return, U+2028 or U+2029 there, and `\s` has a set of its own.
"""

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
