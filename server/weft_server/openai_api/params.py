"""What a field of weft.v1 is called in a request of OpenAI's: the `param` of an error, and the name in its message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weft_proto.decoding import LENGTH_PENALTY, PENALTIES, SAMPLING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft_server.api.refusal import Refusal

_TABLE = {f"decoding.{row.path}": row.name for row in (*SAMPLING, *PENALTIES, LENGTH_PENALTY)}
PARAMS: Mapping[str, str] = _TABLE | {
    "model": "model",
    "messages.turns": "messages",
    "messages.turns[].call_id": "messages[].tool_call_id",
    "messages.turns[].parts": "messages[].content",
    "messages.turns[].parts[].image": "messages[].content[].image_url.url",
    "messages.turns[].parts[].image.data": "messages[].content[].image_url.url",
    "messages.turns[].calls": "messages[].tool_calls",
    "messages.turns[].calls[].name": "messages[].tool_calls[].function.name",
    "messages.turns[].calls[].arguments": "messages[].tool_calls[].function.arguments",
    "num_top_tokens": "top_logprobs",
    "decoding.max_new_tokens": "max_tokens",
    "decoding.min_new_tokens": "min_tokens",
    "decoding.num_outputs": "n",
    "decoding.bias": "logit_bias",
    "decoding.beams": "num_beams",
    "decoding.beams.num_beams": "num_beams",
    "decoding.beams.early_stopping": "early_stopping",
    "decoding.constraint": "response_format",
    "decoding.constraint.json_schema": "response_format",
    "decoding.constraint.regex": "regex",
    "decoding.constraint.lark": "grammar",
    "decoding.constraint.choice": "choice",
    "decoding.constraint.choice.texts": "choice",
    "decoding.stop": "stop",
    "decoding.stop_token_ids": "stop_token_ids",
    "decoding.stop_token_ids.ids": "stop_token_ids",
}
_DECODING = "decoding."
# How a message of weft.v1 speaks of other fields. The longer ones come first, because they begin with shorter ones.
_SPOKEN = {name: param for name, param in PARAMS.items() if name.startswith(_DECODING)} | {
    "decoding.constraint": "a constraint",
    "decoding.greedy": "greedy decoding",
    "decoding.sampling": "draws",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
}
_LONGEST_FIRST = sorted(_SPOKEN.items(), key=lambda each: -len(each[0]))
# What stands behind these in a field's path is nothing that the caller knows.
_WHOLE = {"model", "logit_bias", "response_format", "tools"}
_INDEX = re.compile(r"\[(\d+)\]")


def param_of(refusal: Refusal, own: Mapping[str, str]) -> tuple[str, str]:
    """Return the message and the `param` of a refusal. `own` are an endpoint's names, which come before the table's.

    A field that is in neither keeps its name.
    """
    field = refusal.field.removeprefix("request.")
    if not field:
        return refusal.message, ""
    param = _named(field, own) or _named(field, PARAMS) or field.removeprefix(_DECODING)
    rest = refusal.message.removeprefix(field)
    said = _renamed(rest)
    return (f"{param}{said}" if rest != refusal.message else said), param


def _renamed(message: str) -> str:
    for name, param in _LONGEST_FIRST:
        message = message.replace(name, param)
    return message


def _named(field: str, names: Mapping[str, str]) -> str:
    """Return the name of the longest beginning of a field's path that the table has, with what is behind it."""
    beginning = field
    while beginning:
        shape = _INDEX.sub("[]", beginning)
        if shape in names:
            name = names[shape]
            for index in _INDEX.findall(beginning):
                name = name.replace("[]", f"[{index}]", 1)
            return name if name in _WHOLE else name + field[len(beginning) :]
        beginning = beginning[: max(beginning.rfind("."), beginning.rfind("["), 0)]
    return ""
