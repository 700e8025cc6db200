"""`tag`: a label for each token of a text."""

from dataclasses import dataclass
from typing import Unpack

from weft._answers import reader
from weft._brief import Brief
from weft._requests import fill_options, fill_text
from weft._types import Alignment, ResolvedModel, Text, Timings, Usage
from weft._verbs.options import Options
from weft._verbs.verb import Verb
from weft_proto.v1 import classification_pb2


class TagOptions(Options, total=False):
    """What tagging takes: all that every request does."""


@dataclass(frozen=True, slots=True)
class TokenLabel:
    """One token, `text[start:end]`, and its most probable label with its place among the labels and its probability.

    `start` and `end` count code points, as Python's str does: not bytes, nor JavaScript's and Java's UTF-16 units. A
    token that stands for no text has `start` equal to `end`, as every token has when token ids were given.
    """

    token: str
    start: int
    end: int
    label: str
    index: int
    score: float


@dataclass(frozen=True, slots=True)
class Span:
    """A run of tokens that belong together, labelled B-X, I-X, ... by the model (Ramshaw and Marcus 1995, IOB2).

    `label` is X, `text` what stands at [start, end) of the request's text, in code points, `score` the least of its
    tokens' scores.
    """

    label: str
    start: int
    end: int
    text: str
    score: float


@dataclass(frozen=True, slots=True, repr=False)
class Tagging(Brief):
    """A label for each token, special ones left out, and the spans they form; none when token ids were given.

    `alignment` is None unless `explain` was asked for; its tokens are all tokens, special ones included.
    """

    tokens: tuple[TokenLabel, ...]
    spans: tuple[Span, ...]
    usage: Usage
    timings: Timings
    model: ResolvedModel
    request_id: str
    alignment: Alignment | None = None


def tag_request(text: Text, **options: Unpack[TagOptions]) -> classification_pb2.TagRequest:
    """Ask for the label of each token of a text."""
    message = classification_pb2.TagRequest()
    fill_text(message, text)
    fill_options(message, {**options})
    return message


TAG = Verb("Tag", tag_request, reader(Tagging))
