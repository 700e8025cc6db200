"""Decoding: from the caller's dataclass to the message, and back."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from weft._decoding import (
    Alternatives,
    Beams,
    Decoding,
    EarlyStopping,
    Greedy,
    LengthDecay,
    Phrase,
    PhraseBias,
    Sampling,
)
from weft._fields import fill, optional, refusal
from weft_proto.decoding import PENALTIES, SAMPLING
from weft_proto.v1 import common_pb2

# Fields with one name and type on both sides.
_PLAIN = ("max_new_tokens", "min_new_tokens", "num_outputs", "forced_first_id", "forced_last_id")
_TOKEN_SETS = ("suppressed", "suppressed_first", "stop_token_ids")
_CONSTRAINTS = ("json_schema", "regex", "lark", "choices")


def decoding_message(decoding: Decoding | None) -> common_pb2.Decoding | None:
    """Make the message; raises InvalidRequest that names the field which can't be sent."""
    if decoding is None:
        return None
    if not isinstance(decoding, Decoding):
        raise refusal("decoding", f"must be a weft.Decoding, not {type(decoding).__name__}")
    message = common_pb2.Decoding()
    stop = _items("stop", decoding.stop, "strings")
    fill(message, "decoding.", **{field: getattr(decoding, field) for field in _PLAIN}, stop=stop)
    _fill_strategy(message, decoding.strategy)
    penalties = {each.field: getattr(decoding, each.name) for each in PENALTIES}
    if any(value is not None for value in penalties.values()):
        fill(message.penalties, "decoding.penalties.", **penalties)
    _fill_tokens(message, decoding)
    _fill_constraint(message, decoding)
    return message


def _items(field: str, given: Any, kind: str) -> tuple[Any, ...]:
    """Give the items of a field that holds several; one alone is refused, for a string's would be its characters."""
    if isinstance(given, str | bytes | Mapping):
        raise refusal(f"decoding.{field}", f"must be a tuple of {kind}, not one {type(given).__name__}")
    try:
        return tuple(given or ())
    except TypeError:
        raise refusal(f"decoding.{field}", f"must be a tuple of {kind}, not {type(given).__name__}") from None


def _fill_strategy(message: common_pb2.Decoding, strategy: Any) -> None:
    match strategy:
        case None:
            pass
        case Greedy() | Sampling(temperature=0):
            message.greedy.SetInParent()
        case Sampling():
            message.sampling.SetInParent()
            given = {each.name: getattr(strategy, each.name) for each in SAMPLING}
            fill(message.sampling, "decoding.sampling.", **given)
        case Beams(num_beams, length_penalty, early_stopping):
            message.beams.SetInParent()
            early = None if early_stopping is None else _early_stopping(early_stopping)
            given = {"num_beams": num_beams, "length_penalty": length_penalty, "early_stopping": early}
            fill(message.beams, "decoding.beams.", **given)
        case Alternatives():
            message.alternatives.SetInParent()
        case other:  # the class without its parentheses, a name
            allowed = "weft.Greedy(), weft.Sampling(...), weft.Beams(...) or weft.Alternatives()"
            raise refusal("decoding.strategy", f"must be {allowed}, not {other!r}")


def _early_stopping(given: Any) -> common_pb2.EarlyStopping.ValueType:
    try:
        word = EarlyStopping(given)
    except ValueError:
        words = ", ".join(repr(each.value) for each in EarlyStopping)
        raise refusal("decoding.beams.early_stopping", f"must be one of {words}, not {given!r}") from None
    return common_pb2.EarlyStopping.Value(f"EARLY_STOPPING_{word.name}")


def _fill_tokens(message: common_pb2.Decoding, decoding: Decoding) -> None:
    """Set what is said of single tokens and phrases."""
    for field in _TOKEN_SETS:
        if (given := getattr(decoding, field)) is not None:
            tokens = getattr(message, field)
            tokens.SetInParent()  # an empty set takes the place of the model's own
            fill(tokens, f"decoding.{field}.", ids=_items(field, given, "token ids"))
    for index, each in enumerate(_items("bias", decoding.bias, "weft.PhraseBias")):
        within = f"decoding.bias[{index}]"
        if not isinstance(each, PhraseBias):
            raise refusal(within, f"must be a weft.PhraseBias, not {type(each).__name__}")
        added = message.bias.add()
        _fill_ids(added, within, each.token_ids)
        fill(added, f"{within}.", bias=each.bias)
    for index, phrase in enumerate(_items("banned", decoding.banned, "texts or token ids")):
        _fill_phrase(message.banned.add(), f"decoding.banned[{index}]", phrase)
    if decoding.prefix is not None:
        _fill_phrase(message.prefix, "decoding.prefix", decoding.prefix)
    if (decay := decoding.length_decay) is not None:
        if not isinstance(decay, LengthDecay):
            raise refusal("decoding.length_decay", f"must be a weft.LengthDecay, not {type(decay).__name__}")
        message.length_decay.SetInParent()
        fill(message.length_decay, "decoding.length_decay.", start=decay.start, factor=decay.factor)


def _fill_phrase(message: common_pb2.Phrase, within: str, phrase: Any) -> None:
    if isinstance(phrase, str):
        fill(message, f"{within}.", text=phrase)
    else:
        _fill_ids(message, within, phrase)


def _fill_ids(message: Any, within: str, ids: Any) -> None:
    message.token_ids.SetInParent()
    try:
        given = None if isinstance(ids, str | bytes | bytearray) else tuple(ids)
    except TypeError:
        given = None
    if given is None:
        raise refusal(within, f"must be a str or token ids, not {type(ids).__name__}")
    fill(message.token_ids, f"{within}.token_ids.", ids=given)


def _fill_constraint(message: common_pb2.Decoding, decoding: Decoding) -> None:
    given = [field for field in _CONSTRAINTS if getattr(decoding, field) is not None]
    if not given:
        return
    if len(given) > 1:
        raise refusal("decoding.constraint", f"give one of {', '.join(_CONSTRAINTS)}, not {' and '.join(given)}")
    if decoding.choices is not None:
        message.constraint.choice.SetInParent()
        choices = _items("choices", decoding.choices, "strings")
        fill(message.constraint.choice, "decoding.constraint.choice.", texts=choices)
        return
    schema = None if decoding.json_schema is None else _schema_text(decoding.json_schema)
    texts = {"json_schema": schema, "regex": decoding.regex, "lark": decoding.lark}
    fill(message.constraint, "decoding.constraint.", **texts)


def _schema_text(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    field = "decoding.constraint.json_schema"
    if not isinstance(schema, Mapping):
        raise refusal(field, f"must be a dict or a str, not {type(schema).__name__}")
    try:
        # As it was written: the order of properties is the order in which they come.
        return json.dumps(schema, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise refusal(field, f"is no JSON: {error}") from None


def _plain(given: Any) -> Any:
    """Give json a mapping that is no dict as one."""
    if isinstance(given, Mapping):
        return dict(given)
    raise TypeError(f"{type(given).__name__} has no form in JSON")


def read_decoding(message: common_pb2.Decoding) -> Decoding:
    """Read the message; what it leaves unset stays None."""
    constraint = message.constraint
    kind = constraint.WhichOneof("kind")
    decay = message.length_decay if message.HasField("length_decay") else None
    same: dict[str, Any] = {field: optional(message, field) for field in _PLAIN}
    same |= {field: tuple(ids.ids) for field in _TOKEN_SETS if (ids := optional(message, field)) is not None}
    same |= {each.name: optional(message.penalties, each.field) for each in PENALTIES}
    same |= {field: getattr(constraint, field) for field in ("json_schema", "regex", "lark") if field == kind}
    return Decoding(
        **same,
        stop=tuple(message.stop),
        strategy=_read_strategy(message),
        bias=tuple(PhraseBias(tuple(each.token_ids.ids), each.bias) for each in message.bias),
        banned=tuple(map(_read_phrase, message.banned)),
        length_decay=None if decay is None else LengthDecay(decay.start, decay.factor),
        prefix=_read_phrase(message.prefix) if message.HasField("prefix") else None,
        choices=tuple(constraint.choice.texts) if kind == "choice" else None,
    )


def _read_strategy(message: common_pb2.Decoding) -> Greedy | Sampling | Beams | Alternatives | None:
    match message.WhichOneof("strategy"):
        case "greedy":
            return Greedy()
        case "sampling":
            return Sampling(**{each.name: optional(message.sampling, each.name) for each in SAMPLING})
        case "beams":
            beams = message.beams
            return Beams(optional(beams, "num_beams"), optional(beams, "length_penalty"), _read_early(beams))
        case "alternatives":
            return Alternatives()
    return None


def _read_early(beams: common_pb2.Beams) -> EarlyStopping | None:
    """Read when the search is done: None for unspecified, and for a word that a newer server invented."""
    with suppress(ValueError):
        word = common_pb2.EarlyStopping.Name(beams.early_stopping).removeprefix("EARLY_STOPPING_").lower()
        return EarlyStopping(word)
    return None


def _read_phrase(message: common_pb2.Phrase) -> Phrase:
    return message.text if message.WhichOneof("phrase") == "text" else tuple(message.token_ids.ids)
