"""multipart/form-data: the fields of a form, and its one file."""

from __future__ import annotations

import logging
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from weft_server.errors import InvalidRequest

MAX_PARTS = 64
# Of a type and its boundary, which has at most 70.
_MAX_TYPE = 512
# It writes a line of each form that is wrong, which callers would fill the log with.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
FORM = "multipart/form-data"


class _Parts:
    """What the parser says of each part: its name, and its bytes."""

    def __init__(self) -> None:
        self.found: list[tuple[bytes, bytearray]] = []
        self._header, self._value = bytearray(), bytearray()
        self.is_whole = False

    def callbacks(self) -> dict[str, Any]:
        return {
            "on_part_begin": self._begin,
            "on_part_data": lambda data, start, end: self.found[-1][1].extend(data[start:end]),
            "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.found) >= MAX_PARTS:
            raise InvalidRequest("", f"the form has more than {MAX_PARTS} parts", "BAD_FORM")
        self.found.append((b"", bytearray()))

    def _end(self) -> None:
        self.is_whole = True

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            # The parser takes the last one. A proxy may have judged the first.
            if self.found[-1][0] or self._value.lower().translate(None, b" \t").count(b";name=") > 1:
                raise InvalidRequest("", "a part of the form has two names", "BAD_FORM")
            self.found[-1] = (options.get(b"name", b""), self.found[-1][1])
        self._header.clear()
        self._value.clear()


def read_form(body: bytes, content_type: str) -> dict[str, list[bytes]]:
    """Return the values of each field, in their order. Raises InvalidRequest for what is no such form."""
    # To parse it takes time that grows faster than it does.
    if len(content_type) > _MAX_TYPE:
        raise InvalidRequest("", f"the content-type has more than {_MAX_TYPE} characters", "BAD_FORM")
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if kind != FORM.encode() or not boundary:
        raise InvalidRequest("", "the body must be multipart/form-data, with a boundary", "BAD_FORM")
    parts = _Parts()
    try:
        parser = MultipartParser(boundary, parts.callbacks())  # type: ignore[arg-type] # it is a TypedDict
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise InvalidRequest("", f"the form cannot be read: {error}", "BAD_FORM") from error
    if not parts.is_whole:
        raise InvalidRequest("", "the form ends without its last boundary", "BAD_FORM")
    form: dict[str, list[bytes]] = {}
    for name, value in parts.found:
        form.setdefault(name.decode(errors="replace"), []).append(bytes(value))
    return form
