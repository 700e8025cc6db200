"""A text that is an argument of a subcommand."""

import sys

from weft.exceptions import InvalidRequest


def read_argument(text: str) -> str:
    """Give the text of an argument: stdin's, without its last line end, for a dash."""
    if text != "-":
        return text
    if sys.stdin is None:
        raise InvalidRequest("stdin is closed")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"stdin is not UTF-8: {error.reason} at byte {error.start}") from None
