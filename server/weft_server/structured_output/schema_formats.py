"""The formats of texts that a JSON Schema may ask for, each narrow enough that no reader of it refuses an answer."""

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
