r"""Patterns of a JSON Schema, which are of ECMA-262, in the notation of a matcher, which is another one.

For example, `.` is no line feed, carriage return, U+2028 or U+2029 there, and `\s` has a set of its own.
"""

from __future__ import annotations

import re

_SPACE = r"\t\n\x0B\x0C\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}"
_ANY = r"[^\n\r\u{2028}\u{2029}]"
_TOKENS = re.compile(
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
    for token in _TOKENS.findall(pattern):
        if in_class:
            parts.append(_in_class(token))
            if token.startswith("[") and len(token) > 1:
                parts[-1] += "^"
        else:
            parts.append(_outside(token))
        if token == "]":
            if in_class and len(parts) > 1 and parts[-2] in ("[", "[^"):
                raise ValueError("an empty class, [] or [^], is not held")
            in_class = False
        elif not in_class:
            in_class = token.startswith("[")
    return "".join(parts)


def _in_class(token: str) -> str:
    if token == "--":
        raise ValueError(r"-- in a class is not held; the sign itself is written \-")
    if token[0] in _CLASS_SIGNS:
        return "\\" + token[0]
    if token.startswith("\\"):
        return _SPACE if token == r"\s" else _escape(token)
    return token


def _outside(token: str) -> str:
    if token.startswith("(?"):
        return _group(token)
    if token.startswith("\\"):
        return f"[{_SPACE}]" if token == r"\s" else _escape(token)
    if token == "{":
        raise ValueError(r"a brace that counts nothing is not held; the sign itself is written \{")
    return _ANY if token == "." else token


def _group(token: str) -> str:
    if token in ("(?=", "(?!", "(?<"):
        raise ValueError("look-around is not held")
    if token.startswith("(?<") or token == "(?:":
        return token
    raise ValueError(f"{token} is not held; groups are written ( or (?: or (?<name>")


def _escape(token: str) -> str:
    r"""An escape, inside a class or outside, but for `\s`."""
    sign = token[1:]
    if sign == "S":
        return f"[^{_SPACE}]"
    if sign in _WORD_ENDS:
        return sign
    if len(sign) > 1 or sign in _KNOWN_ESCAPES or (sign.isascii() and sign and not sign.isalnum()):
        return token
    raise ValueError(f"{token} is not held")
