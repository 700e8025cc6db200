"""Texts of a command line, which may be any bytes."""

from weft_export.errors import ExportError


def utf8(option: str, text: str) -> str:
    """Return a text that an option gave. ExportError when its bytes were no characters."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ExportError(f"{option}: it is not UTF-8") from error
    return text
