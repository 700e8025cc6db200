"""What changes scores: the fields of a Decoding that become rules, checked, in transformers' order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft_proto.decoding import BIAS, DECAY_FACTOR, MAX_PHRASES, MAX_TOKENS, PENALTIES, DecodingField
from weft_server.errors import InvalidRequest
from weft_server.logits_processors.penalties import LengthDecay, penalties_of
from weft_server.logits_processors.phrases import Banned, SequenceBias, Suppressed

if TYPE_CHECKING:
    from weft_proto.v1 import common_pb2
    from weft_server.logits_processors.base import Rule
    from weft_server.requests.phrase_reader import PhraseReader


class RequestBounds(NamedTuple):
    """What the model and the request's other fields say of its rules."""

    # Those of the model, and the request's own.
    end_ids: tuple[int, ...]
    min_new: int
    max_new: int
    # How many tokens the answer begins with, whatever the model says.
    num_forced: int
    # Whether the model reads a source of the tokens that it writes.
    has_source: bool


def rules_of(
    asked: common_pb2.Decoding,
    reader: PhraseReader,
    bounds: RequestBounds,
    constraint: Rule | None = None,
    last: Rule | None = None,
) -> tuple[Rule, ...]:
    """Return the rules that a request asks for, whose defaults are filled in. `last` stands behind them.

    Where there are others, or more end tokens than the model's, min_new_tokens is one of them.

    Raises:
        InvalidRequest: a number is outside its range. Nothing is clamped.
    """
    rules: list[Rule] = []
    after: list[Rule] = []
    # Most requests ask for none of these. To look for each takes 7 us.
    if asked.ListFields():
        rules += (*_bias(asked, reader), *_penalties(asked.penalties, bounds), *_banned(asked, reader))
        after += (*_decay(asked, bounds), *_suppressed(asked, reader, bounds.num_forced))
    if last is not None:
        after.append(last)
    if bounds.min_new and (rules or after or constraint or asked.stop_token_ids.ids):
        rules.append(Suppressed(bounds.end_ids, bounds.min_new))
    if constraint is not None:
        rules.append(constraint)
    return (*rules, *after)


def token_set(asked: common_pb2.Decoding, name: str, reader: PhraseReader) -> tuple[int, ...]:
    """Return the ids of a TokenSet. Raises InvalidRequest if they are too many, or no tokens."""
    ids = getattr(asked, name).ids
    if len(ids) > MAX_TOKENS:
        raise InvalidRequest(f"decoding.{name}.ids", f"must be at most {MAX_TOKENS}, not {len(ids)}")
    return reader.known(ids, f"decoding.{name}.ids")


def checked(field: DecodingField, value: Any, path: str = "") -> Any:
    """Return a number of the wire, which stands at `path`. Raises InvalidRequest outside the field's range."""
    if not field.takes(value):
        # As few digits as tell it from its neighbours. 1.0000001 does not become 1.
        given = str(np.float32(value)) if isinstance(value, float) else str(value)
        raise InvalidRequest(f"decoding.{path or field.path}", f"must be {field.range}, not {given}{field.advice}")
    return value


def _bias(asked: common_pb2.Decoding, reader: PhraseReader) -> list[Rule]:
    if len(asked.bias) > MAX_PHRASES:
        raise InvalidRequest("decoding.bias", f"must be at most {MAX_PHRASES} phrases, not {len(asked.bias)}")
    biases = []
    for index, each in enumerate(asked.bias):
        checked(BIAS, each.bias, f"bias[{index}].bias")
        biases.append((reader.tokens(each.token_ids.ids, f"decoding.bias[{index}].token_ids"), each.bias))
    return [SequenceBias(biases)] if biases else []


def _penalties(asked: common_pb2.Penalties, bounds: RequestBounds) -> list[Rule]:
    given = {descriptor.name for descriptor, _ in asked.ListFields()}
    for each in PENALTIES:
        checked(each, each.of(asked))
        if each.field.startswith("encoder_") and each.field in given and not bounds.has_source:
            raise InvalidRequest(
                f"decoding.{each.path}", "needs a model that reads a source of the tokens that it writes"
            )
    return penalties_of(asked)


def _banned(asked: common_pb2.Decoding, reader: PhraseReader) -> list[Rule]:
    if len(asked.banned) > MAX_PHRASES:
        raise InvalidRequest("decoding.banned", f"must be at most {MAX_PHRASES} phrases, not {len(asked.banned)}")
    phrases = reader.banned(asked.banned)
    return [Banned(phrases)] if phrases else []


def _decay(asked: common_pb2.Decoding, bounds: RequestBounds) -> list[Rule]:
    if not asked.HasField("length_decay"):
        return []
    decay = asked.length_decay
    checked(DecodingField("length_decay.start", None, 0, bounds.max_new), decay.start)
    checked(DECAY_FACTOR, decay.factor)
    return [LengthDecay(decay.start, decay.factor, bounds.end_ids)]


def _suppressed(asked: common_pb2.Decoding, reader: PhraseReader, num_forced: int) -> list[Rule]:
    always, first = (token_set(asked, name, reader) for name in ("suppressed", "suppressed_first"))
    rules: list[Rule] = [Suppressed(always)] if always else []
    return [*rules, Suppressed(first, num_forced + 1)] if first else rules
