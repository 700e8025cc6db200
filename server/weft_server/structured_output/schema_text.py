"""Where in a JSON Schema something stands, and what a reference in it points to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from weft_server.structured_output.schema_keywords import LISTS, MAPS, ONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_server.structured_output.schema_keywords import Draft


class Unheld(ValueError):
    """What a schema has that an answer would not be held to. Its text is for the caller, and names the place."""


def below(pointer: str, *words: str | int) -> str:
    """Return the JSON Pointer of what is inside what another one points to (RFC 6901)."""
    return "".join([pointer, *(f"/{str(word).replace('~', '~0').replace('/', '~1')}" for word in words)])


def at(pointer: str) -> str:
    """Return where something is, for a sentence. At the top nothing needs to be said."""
    return f" at {pointer}" if pointer else ""


def schemas_in(schema: dict[str, Any], pointer: str) -> Iterator[tuple[str, Any]]:
    """Yield the schemas directly inside a schema, each with its pointer."""
    for word, value in schema.items():
        if word in LISTS and isinstance(value, list):
            yield from ((below(pointer, word, index), each) for index, each in enumerate(value))
        elif word in MAPS and isinstance(value, dict):
            yield from ((below(pointer, word, name), each) for name, each in value.items())
        elif word in ONE:
            yield below(pointer, word), value


class References:
    """What `$ref` may point to in a schema."""

    def __init__(self, root: Any, draft: Draft) -> None:
        self._root, self._draft = root, draft
        self._anchors: dict[str, str] | None = None

    def pointer_of(self, reference: object) -> str:
        """Return the pointer that a `$ref` means. Whether something is there, `at` says.

        Raises:
            ValueError: it is outside the schema, or there is no such anchor.
        """
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise ValueError(f"{_shown(reference)} is not within the schema: nothing is loaded")
        fragment = unquote(reference[1:])
        if fragment and not fragment.startswith("/"):
            if self._anchors is None:
                self._anchors = dict(_anchors(self._root, self._draft))
            if fragment not in self._anchors:
                raise ValueError(f"there is no anchor {_shown(fragment)}")
            return self._anchors[fragment]
        return fragment

    def at(self, pointer: str) -> tuple[Any, bool]:
        """Return what a pointer points to, and whether it is below an `$id` that is not at the top.

        Raises:
            ValueError: nothing is there, or what is around it says that it is of another draft.
        """
        found, is_embedded, passed = self._root, False, ""
        for word in pointer.split("/")[1:]:
            key = word.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and _is_index(key) and int(key) < len(found):
                found = found[int(key)]
            else:
                raise ValueError(f"nothing is at {_shown(pointer)}")
            passed = f"{passed}/{word}"
            is_embedded = is_embedded or self._draft.is_resource(found)
            if passed != pointer and isinstance(found, dict) and isinstance(found.get("$schema"), str):
                self._check_draft(found["$schema"], passed)
        return found, is_embedded

    def _check_draft(self, said: str, pointer: str) -> None:
        try:
            self._draft.check(said)
        except ValueError as error:
            raise ValueError(f"at {pointer}, {error}") from error


def _is_index(key: str) -> bool:
    """Whether a word of a pointer is an index. One has one spelling (RFC 6901)."""
    return key == "0" or (key.isascii() and key.isdigit() and not key.startswith("0"))


def _anchors(root: Any, draft: Draft) -> Iterator[tuple[str, str]]:
    """Yield the anchors of the schema at the top, and where they are."""
    waiting = [("", root)]
    while waiting:
        pointer, schema = waiting.pop()
        if not isinstance(schema, dict) or (pointer and draft.is_resource(schema)):
            continue
        for word in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(word), str):
                yield schema[word], pointer
        waiting.extend(schemas_in(schema, pointer))


def _shown(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
