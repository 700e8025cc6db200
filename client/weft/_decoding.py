"""How text is produced: the settings of one request, all of them optional."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from weft._brief import Brief

Phrase = str | Sequence[int]
"""Words of the model's language, or the ids of tokens."""


class EarlyStopping(StrEnum):
    """When a beam search is done that has `num_beams` finished answers.

    HEURISTIC: when the best unfinished answer, scored at its length now, is no better than the worst finished one.
    FULL: at once. NEVER: when no unfinished answer can become better. These are False, True and "never" of
    `transformers`.
    """

    HEURISTIC = "heuristic"
    FULL = "full"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Greedy:
    """Take the most probable token at each step; the lower id wins a tie."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Draw each token from softmax(logits / temperature), cut in the order of the fields.

    - `temperature` divides the logits; (0, 10], default 1.
    - `top_k` is how many of the most probable tokens may be drawn; 0 (the default) means all of them.
    - `top_p` is the mass of the nucleus; (0, 1], default 1.
    - `seed` makes the answer repeatable. Default: drawn by the server, below 2^53, which a double holds exactly.
      The answer carries the seed that was used.
    - `min_p` keeps tokens of at least `min_p` times the best one's probability; [0, 1], default 0.
    - `typical_p` keeps the tokens whose information is nearest to the entropy, until their mass reaches `typical_p`
      (Meister et al. 2022); (0, 1], default 1.
    - `epsilon_cutoff` keeps tokens of at least this probability (Hewitt et al. 2022); [0, 1), default 0.
    - `eta_cutoff` keeps tokens of at least min(eta, sqrt(eta) * exp(-entropy)) (Hewitt et al. 2022); [0, 1),
      default 0.

    None leaves a number to the server. The same seed gives the same text, whatever else the server does. A temperature
    of 0 draws nothing: it asks for `Greedy`, whatever the other numbers are.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    epsilon_cutoff: float | None = None
    eta_cutoff: float | None = None


@dataclass(frozen=True, slots=True)
class Beams:
    """Keep the `num_beams` most probable beginnings at each step, and answer with the best finished ones.

    The score of an answer is the sum of its log-probabilities over its number of tokens to the power of
    `length_penalty`; what a bundle feeds the decoder before the answer is counted too. With a prefix only the tokens
    behind it count. A stream gives the whole answer at its end.
    """

    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: EarlyStopping | None = None


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Begin with each of the `Decoding.num_outputs` most probable tokens, and continue each one greedily.

    With `Decoding.prefix` they are the most probable tokens behind it.
    """


@dataclass(frozen=True, slots=True)
class PhraseBias:
    """Add `bias` to the logit of a phrase's last token, wherever the tokens before it have just come."""

    token_ids: Sequence[int]
    bias: float


@dataclass(frozen=True, slots=True)
class LengthDecay:
    """Make the end more probable at each step behind `start` tokens, by `factor`."""

    start: int
    factor: float


@dataclass(frozen=True, slots=True, repr=False)
class Decoding(Brief):
    """How text is produced. None leaves a field to the model; an answer carries all of them, the seed included.

    `num_outputs` is how many answers to return: the best of a search, draws of seed, seed + 1 and so on, or
    alternatives.

    Penalties:

    - `repetition_penalty` divides positive logits, and multiplies negative ones, of tokens that the decoder has
      read or produced, a prompt included (Keskar et al. 2019); [0.1, 10], default 1.
    - `encoder_repetition_penalty` does the opposite for the source's tokens: above 1 they become more probable;
      [0.1, 10], default 1. `InvalidRequest` for a model without a text encoder, or whose sources and answers have
      vocabularies of different sizes.
    - `presence_penalty` is taken from the logit of each token that the answer has; [-10, 10], default 0.
    - `frequency_penalty` is taken from the logit of a token for each time that the answer has it; [-10, 10],
      default 0.
    - `no_repeat_ngram_size` lets no sequence of so many tokens come twice, a prompt included; [0, 32], 0 (the
      default) lets all.
    - `encoder_no_repeat_ngram_size` lets no sequence of so many tokens of the source come; [0, 32], default 0.
      `InvalidRequest` as for `encoder_repetition_penalty`.
    - `encoder_presence_penalty` is taken from the logit of each token of the source; [-10, 10], default 0.

    Tokens: `bias` adds to logits. `banned` phrases do not come. `suppressed` tokens never come, and `suppressed_first`
    do not come first. `forced_first_id` is the first token. `forced_last_id` is the last one that `max_new_tokens`
    allows. `length_decay` makes the end more probable. `stop_token_ids` end the answer. An empty set of tokens takes
    the place of the model's own.

    `prefix` is what the answer begins with. At most one of `json_schema` (a dict, or its JSON), `regex`, `lark` (a
    grammar) and `choices` says what the text must be. An answer that `max_new_tokens` cuts is a beginning of it.
    """

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    strategy: Greedy | Sampling | Beams | Alternatives | None = None
    num_outputs: int | None = None
    repetition_penalty: float | None = None
    encoder_repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    encoder_no_repeat_ngram_size: int | None = None
    encoder_presence_penalty: float | None = None
    bias: tuple[PhraseBias, ...] = ()
    banned: tuple[Phrase, ...] = ()
    suppressed: tuple[int, ...] | None = None
    suppressed_first: tuple[int, ...] | None = None
    forced_first_id: int | None = None
    forced_last_id: int | None = None
    length_decay: LengthDecay | None = None
    stop_token_ids: tuple[int, ...] | None = None
    prefix: Phrase | None = None
    json_schema: str | Mapping[str, Any] | None = None
    regex: str | None = None
    lark: str | None = None
    choices: tuple[str, ...] | None = None
