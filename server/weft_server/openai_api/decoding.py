"""The fields that say how text is produced, and the Decoding of weft.v1 that they become."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weft_proto.decoding import (
    LENGTH_PENALTY,
    MAX_PHRASES,
    MAX_STOP_STRINGS,
    MAX_TOKENS,
    PENALTIES,
    SAMPLING,
    DecodingField,
)
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest
from weft_server.openai_api.fields import Field
from weft_server.structured_output.grammars import MAX_BYTES, MAX_TEXTS

if TYPE_CHECKING:
    from collections.abc import Generator

_EARLY_STOPPING = {
    False: common_pb2.EARLY_STOPPING_HEURISTIC,
    True: common_pb2.EARLY_STOPPING_FULL,
    "never": common_pb2.EARLY_STOPPING_NEVER,
}
# Each is a constraint. At most one may be given.
_CONSTRAINTS = ("response_format", "regex", "grammar", "choice")
_BEAMS = ("num_beams", "length_penalty", "early_stopping")
_MOST_ENTRIES = {
    "stop": MAX_STOP_STRINGS,
    "stop_token_ids": MAX_TOKENS,
    "choice": MAX_TEXTS,
}
# What vLLM calls all tokens in `top_k`.
_ALL = -1
# Of a number that is wrong.
_SHOWN_DIGITS = 32
_ANY_OBJECT = '{"type": "object"}'


class _Format(msgspec.Struct, tag_field="type", forbid_unknown_fields=True):
    pass


class TextFormat(_Format, tag="text"):
    """Any text."""


class JsonObject(_Format, tag="json_object"):
    """Any JSON object."""


class JsonSchema(msgspec.Struct, forbid_unknown_fields=True):
    """A JSON Schema. Its text reaches the server as it stands, with its keys in their order."""

    name: str
    schema: msgspec.Raw
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(_Format, tag="json_schema"):
    """JSON that fits a schema."""

    json_schema: JsonSchema


def _number(row: DecodingField) -> Field:
    says = row.help or f"As in transformers; {row.range}."
    return Field(row.name, row.kind | None, says)


NUMBERS = tuple(
    row if row.name != "temperature" else row._replace(help="How randomly tokens are drawn. 0: the most probable ones.")
    for row in (*SAMPLING, *PENALTIES)
)
# Those that a recording's text can have, too.
NUMBER_FIELDS = (
    *map(_number, NUMBERS),
    Field("num_beams", int | None, "Search, and keep this number of beginnings at each step."),
    _number(LENGTH_PENALTY),
)
DECODING_FIELDS = (
    *NUMBER_FIELDS,
    Field("early_stopping", bool | Literal["never"] | None, "When a search is done, as in transformers."),
    Field("max_tokens", int | None, "The most tokens of an answer. Default: the model's own."),
    Field("min_tokens", int | None, "The answer does not end before this number of tokens."),
    Field("stop", str | list[str] | None, "One text or up to four. The answer ends before the first that comes."),
    Field("stop_token_ids", list[int] | None, "Tokens that end the answer."),
    Field("n", int | None, "How many answers to give: draws, or the best of a search. It needs one of the two."),
    Field("logit_bias", msgspec.Raw, "By token id: what is added to its logit, -100 to 100."),
    Field(
        "response_format",
        TextFormat | JsonObject | JsonSchemaFormat | None,
        "`text`, `json_object` or `json_schema`. A schema is always followed strictly.",
    ),
    Field("regex", str | None, "The answer matches this regular expression."),
    Field("grammar", str | None, "The answer is of this grammar, in Lark's notation."),
    Field("choice", list[str] | None, "The answer is one of these texts."),
)


def numbers_of(asked: Any) -> common_pb2.Decoding:
    """Return the Decoding that the fields of NUMBER_FIELDS ask for, and those of an answer's length.

    Where the request gives no number, the model's own holds. One of the fields of sampling asks for draws, and a
    temperature of 0 for none. A field that the endpoint lacks is one that is not given.
    """
    decoding = common_pb2.Decoding()
    _set_lengths(decoding, asked)
    _set_strategy(decoding, asked)
    for row in PENALTIES:
        _put_row(decoding.penalties, row, asked)
    return decoding


def decoding_of(asked: Any) -> common_pb2.Decoding:
    """Return the Decoding that the fields of DECODING_FIELDS ask for."""
    _check_sizes(asked)
    decoding = numbers_of(asked)
    stop = _given(asked, "stop")
    decoding.stop.extend([stop] if isinstance(stop, str) else stop or ())
    _put(decoding, "num_outputs", _given(asked, "n"), "n")
    if (ids := _given(asked, "stop_token_ids")) is not None:
        with in_range("stop_token_ids"):
            decoding.stop_token_ids.ids.extend(ids)
        decoding.stop_token_ids.SetInParent()
    for token, bias in _biases(asked).items():
        if not (token.isascii() and token.isdigit()):
            raise InvalidRequest("logit_bias", f"must have token ids as its keys, not {token[:32]!r}")
        with in_range("logit_bias"):
            decoding.bias.add(bias=bias).token_ids.ids.append(int(token))
    _set_constraint(decoding, asked)
    return decoding


def _biases(asked: Any) -> dict[str, float]:
    """Return `logit_bias`, which is read here because hundreds of thousands of entries would take long."""
    raw = bytes(_given(asked, "logit_bias") or b"null")
    if raw.count(b":") > MAX_PHRASES:
        raise InvalidRequest("logit_bias", f"must have at most {MAX_PHRASES:,} entries")
    try:
        return msgspec.json.decode(raw, type=dict[str, float] | None) or {}
    except msgspec.ValidationError as error:
        raise InvalidRequest("logit_bias", "must be an object of token ids and numbers") from error


def _check_sizes(asked: Any) -> None:
    """Raise InvalidRequest for more than any request of weft.v1 may have, before something is made of it."""
    for name, most in _MOST_ENTRIES.items():
        given = _given(asked, name)
        if given is not None and not isinstance(given, str) and len(given) > most:
            raise InvalidRequest(name, f"must have at most {most:,} entries, not {len(given):,}")
    for name in ("regex", "grammar"):
        if len(_given(asked, name) or "") > MAX_BYTES:
            raise InvalidRequest(name, f"must be at most {MAX_BYTES:,} bytes of UTF-8", "CONSTRAINT_REFUSED")
    schema = _given(asked, "response_format")
    if isinstance(schema, JsonSchemaFormat) and len(bytes(schema.json_schema.schema)) > MAX_BYTES:
        why = f"has a schema of more than {MAX_BYTES:,} bytes of UTF-8"
        raise InvalidRequest("response_format", why, "CONSTRAINT_REFUSED")


@contextmanager
def in_range(param: str) -> Generator[None]:
    """Say which field has a number that no message can hold."""
    try:
        yield
    except ValueError as error:
        raise InvalidRequest(param, "has a number that is out of range") from error


def _given(asked: Any, name: str) -> Any:
    return getattr(asked, name, None)


def _put(message: Any, field: str, value: Any, name: str) -> None:
    """Set a field of a message if the request gives it by a name. A message that gets none stays unset."""
    if value is not None:
        with in_range(name):
            setattr(message, field, value)


def _put_row(message: Any, row: DecodingField, asked: Any) -> None:
    """Set a number of the table if the request gives it. What the message cannot hold either is left to it."""
    value = _given(asked, row.name)
    if value == _ALL and row.name == "top_k":
        value = 0
    if value is not None and row.maximum is not None and not row.takes(value):
        # The table's advice is for callers of weft.v1.
        also = ", or 0 for no draws" if row.advice else ""
        # An integer may be too large for a float.
        shown = f"{value:g}" if isinstance(value, float) else str(value)[:_SHOWN_DIGITS]
        raise InvalidRequest(row.name, f"must be {row.range}{also}, not {shown}")
    _put(message, row.field, value, row.name)


def _set_lengths(decoding: common_pb2.Decoding, asked: Any) -> None:
    named = [each for each in ("max_tokens", "max_completion_tokens") if _given(asked, each) is not None]
    if len({_given(asked, each) for each in named}) > 1:
        raise InvalidRequest("max_tokens", "is not max_completion_tokens: give one of the two")
    for name in named:
        _put(decoding, "max_new_tokens", _given(asked, name), name)
    _put(decoding, "min_new_tokens", _given(asked, "min_tokens"), "min_tokens")


def _set_strategy(decoding: common_pb2.Decoding, asked: Any) -> None:
    is_greedy = _given(asked, "temperature") == 0
    draws = [row for row in SAMPLING if _given(asked, row.name) is not None]
    searches = [name for name in _BEAMS if _given(asked, name) is not None]
    sampling = common_pb2.Sampling()
    for row in draws:
        # Beside a temperature of 0 the others have no effect, but are not right because of it.
        if not (is_greedy and row.name == "temperature"):
            _put_row(sampling, row, asked)
    if searches and "num_beams" not in searches:
        raise InvalidRequest(searches[0], "needs num_beams: it is for a search")
    if searches and draws and not is_greedy:
        raise InvalidRequest(searches[0], f"does not go with {draws[0].name}: a search draws nothing")
    if searches:
        decoding.beams.SetInParent()
        _put(decoding.beams, "num_beams", _given(asked, "num_beams"), "num_beams")
        _put_row(decoding.beams, LENGTH_PENALTY, asked)
        if (early := _given(asked, "early_stopping")) is not None:
            decoding.beams.early_stopping = _EARLY_STOPPING[early]
    elif is_greedy:
        decoding.greedy.SetInParent()
    elif draws:
        decoding.sampling.CopyFrom(sampling)


def _set_constraint(decoding: common_pb2.Decoding, asked: Any) -> None:
    given = [name for name in _CONSTRAINTS if _given(asked, name) is not None]
    if isinstance(_given(asked, "response_format"), TextFormat):
        given.remove("response_format")
    if len(given) > 1:
        raise InvalidRequest(given[1], f"does not go with {given[0]}: an answer has one constraint")
    for name in given:
        value = _given(asked, name)
        if isinstance(value, JsonSchemaFormat):
            decoding.constraint.json_schema = bytes(value.json_schema.schema).decode()
        elif isinstance(value, JsonObject):
            decoding.constraint.json_schema = _ANY_OBJECT
        elif name == "choice":
            decoding.constraint.choice.SetInParent()
            decoding.constraint.choice.texts.extend(value)
        elif name == "regex":
            decoding.constraint.regex = value
        else:
            decoding.constraint.lark = value
