"""The fields of a request: those that are taken, ignored or refused. The table is also what docs/openai.md shows."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from weft_server.errors import InvalidRequest
from weft_server.openai_api.once import check_once

REQUIRED = msgspec.NODEFAULT
# msgspec ends its sentence with the place: "Expected `int`, got `str` - at `$.messages[0].role`".
_PLACE = " - at `$"
_MISSING, _UNKNOWN = "Object missing required field `", "Object contains unknown field `"
# Of a field's name that nobody knows, this many characters are said again.
_SHOWN = 128


class Field(NamedTuple):
    """A field that has an effect. `says` is its line in the docs."""

    name: str
    type: Any
    says: str
    default: Any = None


class NotTaken(NamedTuple):
    """A field of OpenAI's that asks for what cannot be done. None and `harmless` values ask for nothing."""

    name: str
    why: str
    harmless: tuple[Any, ...] = ()


class RequestFields:
    """All fields of an endpoint. Any other one is refused."""

    def __init__(
        self, name: str, taken: tuple[Field, ...], refused: tuple[NotTaken, ...] = (), ignored: tuple[str, ...] = ()
    ) -> None:
        self.taken, self.refused, self.ignored = taken, refused, ignored
        # Of what is ignored, nothing is made.
        others = [*((each.name, Any, None) for each in refused), *((name, msgspec.Raw, None) for name in ignored)]
        self._struct = msgspec.defstruct(
            name, [*((each.name, each.type, each.default) for each in taken), *others],
            kw_only=True, forbid_unknown_fields=True,
        )  # fmt: skip
        self._decoder = msgspec.json.Decoder(self._struct)

    def read(self, body: bytes) -> Any:
        """Return the struct of a JSON body. Raises InvalidRequest, which names the field."""
        try:
            if not body.isascii():
                # The decoder does not look into what it leaves as it stands, such as a schema.
                body.decode()
            asked = self._decoder.decode(body)
            check_once(body)
            return self._checked(asked)
        except msgspec.ValidationError as error:
            raise _refusal(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest("", f"the body is no JSON: {str(error)[:_SHOWN]}", "BAD_JSON") from error

    def convert(self, form: dict[str, Any]) -> Any:
        """Return the struct of a form, whose values are texts. Raises InvalidRequest, which names the field."""
        try:
            return self._checked(msgspec.convert(form, self._struct, strict=False))
        except msgspec.ValidationError as error:
            raise _refusal(str(error)) from error

    def schemas(self, template: str) -> tuple[str, dict[str, Any]]:
        """Return the name of the body's JSON Schema, and all schemas that it takes, by name.

        `template` has `{name}`: one refers to another by it.
        """
        name = self._struct.__name__
        _, schemas = msgspec.json.schema_components([self._struct], ref_template=template)
        properties = schemas[name]["properties"]
        for field in self.taken:
            properties[field.name]["description"] = field.says
        for refused in self.refused:
            why = f"Not taken: {refused.why}."
            properties[refused.name] = {"enum": [None, *refused.harmless], "description": why}
        for ignored in self.ignored:
            properties[ignored] = {"description": "Ignored."}
        return name, schemas

    def _checked(self, asked: Any) -> Any:
        for name, why, harmless in self.refused:
            value = getattr(asked, name)
            # In Python true is 1, and false 0.
            said = [each for each in harmless if isinstance(each, bool) == isinstance(value, bool)]
            if value is not None and value not in said:
                raise InvalidRequest(name, f"is not taken: {why}", "NOT_SUPPORTED")
        return asked


def _refusal(sentence: str) -> InvalidRequest:
    what, _, place = (
        sentence.rpartition(_PLACE) if sentence.endswith("`") and _PLACE in sentence else (sentence, "", "")
    )
    place = place.removesuffix("`").removeprefix(".")[:_SHOWN]
    name = what.partition("`")[2][:_SHOWN].removesuffix("`")
    if what.startswith(_MISSING):
        return InvalidRequest(_joined(place, name), "is required", "EMPTY_INPUT")
    if what.startswith(_UNKNOWN):
        return InvalidRequest(_joined(place, name), "is no field of this request", "UNKNOWN_FIELD")
    what = what.replace("`", "")
    if not place:
        return InvalidRequest("", f"the body is not what is wanted: {what}")
    return InvalidRequest(place, f"is not what is wanted: {what}")


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
