"""From a line to a request: a text, a path of a picture, or JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from weft._decoding import Decoding
from weft._decoding_json import decoding_from, over
from weft._files.kind import Kind
from weft._files.lines import Line
from weft.exceptions import Error, InvalidRequest


class Blank(Error):
    """A line that holds nothing: nothing is asked, and its answer is an empty line."""


# What is named by its path.
_PATHS = frozenset({"image", "audio"})


@dataclass(frozen=True, slots=True)
class Asking:
    """How lines are asked.

    Args:
        kind: What their verb takes.
        options: Of the verb, for every line; a line of JSON may say otherwise.
        is_json: Whether lines are JSON.
        are_pictures: Whether lines that are not JSON are paths of pictures.
    """

    kind: Kind
    options: Mapping[str, Any]
    is_json: bool
    are_pictures: bool = False

    def check(self) -> None:
        """Raise InvalidRequest for options that would be wrong for every line."""
        blank = b"" if self.kind.inputs[0] in _PATHS else ""
        beside = {self.kind.beside: ""} if self.kind.beside else {}
        self.kind.verb.request(blank, **beside, **self.options)

    def request(self, line: Line) -> Message:
        """Return the request of a line; raises Blank for one without any, and InvalidRequest."""
        text = line.text()
        if not text.strip():
            raise Blank("")
        given = self.record(text) if self.is_json else self._plain(text)
        inputs = {name: given.pop(name) for name in self.kind.inputs if given.get(name) is not None}
        if len(inputs) != 1:
            raise InvalidRequest(f"give {'one of ' * (len(self.kind.inputs) > 1)}{', '.join(self.kind.inputs)}")
        ((name, value),) = inputs.items()
        if name in _PATHS:
            if not isinstance(value, str):
                raise InvalidRequest(f"{name}: must be a path, not {type(value).__name__}")
            value = Path(value)
        if self.kind.beside and given.get(self.kind.beside) is None:
            raise InvalidRequest(f"give {self.kind.beside}")
        # Of verbs that take two kinds of input, texts are the first argument. A source is one whatever its kind.
        is_second = name in ("messages", "image") and len(self.kind.inputs) > 1 and not self.kind.beside
        before = (None,) if is_second else ()
        return self.kind.verb.request(*before, value, **self._options(given))

    def _plain(self, text: str) -> dict[str, Any]:
        """Read a line that is not JSON."""
        name = "image" if self.are_pictures else self.kind.inputs[0]
        if not self.kind.beside:
            return {name: text}
        parts = text.split("\t")
        if len(parts) != 2:
            first = {"image": "picture", "context": "context"}.get(name, "source")
            raise InvalidRequest(f"must be a {first} and a {self.kind.beside}, with a tab between them")
        return {name: parts[0], self.kind.beside: parts[1]}

    def record(self, text: str) -> dict[str, Any]:
        """Read a line of JSON: an object, or a text or token ids alone."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"is no JSON: {error}", reason="NOT_JSON") from None
        if isinstance(value, str):
            return {"text": value}
        if isinstance(value, list):
            return {"token_ids": value}
        if not isinstance(value, dict):
            raise InvalidRequest("must be an object, a text or token ids", reason="NOT_JSON")
        known = {"id", *self.kind.inputs, *self.kind.options}
        if unknown := value.keys() - known:
            raise InvalidRequest(f"{min(unknown)}: is unknown; there are {', '.join(sorted(known))}")
        return value

    def said_by(self, line: Line, name: str) -> Any:
        """Return what a line of JSON says under a name, such as its id; None if it does not."""
        try:
            return self.record(line.text()).get(name) if self.is_json and f'"{name}"'.encode() in line.data else None
        except Error:
            return None

    def _options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: value for name, value in given.items() if name != "id" and value is not None}
        if "decoding" in own:
            own["decoding"] = over(decoding_from(own["decoding"]), self.options.get("decoding") or Decoding())
        return {**self.options, **own}
