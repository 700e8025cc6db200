"""What changes scores: the fields of a Decoding that become rules, checked, in transformers' order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.errors import InvalidRequest
from weft_server.logits_processors.banned import Banned, Suppressed
from weft_server.logits_processors.length_decay import LengthDecay
from weft_server.logits_processors.no_repeat_ngrams import NoRepeat, NoSourceRepeat
from weft_server.logits_processors.presence_penalty import PresencePenalty
from weft_server.logits_processors.repetition_penalty import RepetitionPenalty, SourceRepetitionPenalty
from weft_server.logits_processors.sequence_bias import SequenceBias
from weft_server.requests.phrases import MAX_PHRASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_proto.v1 import common_pb2
    from weft_server.logits_processors.base import Rule
    from weft_server.requests.phrases import PhraseReader

MAX_TOKENS = 1024
MAX_BIAS = 100.0
# Each with its least and greatest value. A field that is not set is 0, which is none of a factor's.
PENALTIES = {
    "repetition": (0.1, 10.0),
    "encoder_repetition": (0.1, 10.0),
    "presence": (-10.0, 10.0),
    "frequency": (-10.0, 10.0),
    "no_repeat_ngram_size": (0, 32),
    "encoder_no_repeat_ngram_size": (0, 32),
}
FACTORS = (0.5, 4.0)


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
    rules = [*_bias(asked, reader), *_penalties(asked.penalties, bounds), *_banned(asked, reader)]
    after = [*_decay(asked, bounds), *_suppressed(asked, reader, bounds.num_forced)]
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


def within(field: str, value: float, least: float, most: float) -> float:
    """Return a number of the wire. Raises InvalidRequest outside [least, most]. NaN is outside."""
    if not least <= value <= most:
        # As few digits as tell it from its neighbours. 1.0000001 does not become 1.
        raise InvalidRequest(field, f"must be {least:g}..{most:g}, not {np.float32(value)}")
    return value


def _bias(asked: common_pb2.Decoding, reader: PhraseReader) -> list[Rule]:
    if len(asked.bias) > MAX_PHRASES:
        raise InvalidRequest("decoding.bias", f"must be at most {MAX_PHRASES} phrases, not {len(asked.bias)}")
    biases = []
    for index, each in enumerate(asked.bias):
        field = f"decoding.bias[{index}]"
        within(f"{field}.bias", each.bias, -MAX_BIAS, MAX_BIAS)
        biases.append((reader.tokens(each.token_ids.ids, f"{field}.token_ids"), each.bias))
    return [SequenceBias(biases)] if biases else []


def _penalties(asked: common_pb2.Penalties, bounds: RequestBounds) -> list[Rule]:
    _check_penalties(asked, bounds)
    every: list[tuple[bool, Callable[[], Rule]]] = [
        (asked.encoder_repetition not in (0, 1), lambda: SourceRepetitionPenalty(asked.encoder_repetition)),
        (asked.repetition not in (0, 1), lambda: RepetitionPenalty(asked.repetition)),
        (bool(asked.presence or asked.frequency), lambda: PresencePenalty(asked.presence, asked.frequency)),
        (asked.no_repeat_ngram_size > 0, lambda: NoRepeat(asked.no_repeat_ngram_size)),
        (asked.encoder_no_repeat_ngram_size > 0, lambda: NoSourceRepeat(asked.encoder_no_repeat_ngram_size)),
    ]
    return [rule() for is_wanted, rule in every if is_wanted]


def _check_penalties(asked: common_pb2.Penalties, bounds: RequestBounds) -> None:
    for descriptor, value in asked.ListFields():
        name = descriptor.name
        within(f"decoding.penalties.{name}", value, *PENALTIES[name])
        if name.startswith("encoder_") and not bounds.has_source:
            why = "needs a model that reads a source of the tokens that it writes"
            raise InvalidRequest(f"decoding.penalties.{name}", why)


def _banned(asked: common_pb2.Decoding, reader: PhraseReader) -> list[Rule]:
    if len(asked.banned) > MAX_PHRASES:
        raise InvalidRequest("decoding.banned", f"must be at most {MAX_PHRASES} phrases, not {len(asked.banned)}")
    phrases = reader.banned(asked.banned)
    return [Banned(phrases)] if phrases else []


def _decay(asked: common_pb2.Decoding, bounds: RequestBounds) -> list[Rule]:
    if not asked.HasField("length_decay"):
        return []
    decay = asked.length_decay
    within("decoding.length_decay.start", decay.start, 0, bounds.max_new)
    within("decoding.length_decay.factor", decay.factor, *FACTORS)
    return [LengthDecay(decay.start, decay.factor, bounds.end_ids)]


def _suppressed(asked: common_pb2.Decoding, reader: PhraseReader, num_forced: int) -> list[Rule]:
    always, first = (token_set(asked, name, reader) for name in ("suppressed", "suppressed_first"))
    rules: list[Rule] = [Suppressed(always)] if always else []
    return [*rules, Suppressed(first, num_forced + 1)] if first else rules
