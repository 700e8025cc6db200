"""`fill_mask`: the tokens that fit in the places of a text's masks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Unpack

from weft._answers import reader
from weft._brief import Brief
from weft._fields import fill
from weft._requests import fill_options, texts_of
from weft._types import Alignment, ResolvedModel, Timings, Usage
from weft._verbs.options import Options
from weft._verbs.verb import Verb
from weft_proto.v1 import classification_pb2


class FillMaskOptions(Options, total=False):
    """What filling masks takes besides.

    `top_k` is how many fillings to return for each mask at most, by default 5 and at most 100. `targets` are the only
    tokens to choose from: each as the vocabulary writes it, or a text that is one token, such as " capital".
    """

    top_k: int | None
    targets: Iterable[str]


@dataclass(frozen=True, slots=True)
class Filling:
    """One token in the place of a mask, its id, and its probability over the whole vocabulary.

    `text` begins with a space if the token does. A token may be a part of a word.
    """

    text: str
    token_id: int
    score: float


@dataclass(frozen=True, slots=True)
class FilledMask:
    """One mask, `text[start:end]`, and the tokens that fit best in its place, best first."""

    start: int
    end: int
    fillings: tuple[Filling, ...]


@dataclass(frozen=True, slots=True, repr=False)
class FilledMasks(Brief):
    """The masks of a text in order; `alignment` is None unless `explain` was asked for."""

    masks: tuple[FilledMask, ...]
    usage: Usage
    timings: Timings
    model: ResolvedModel
    request_id: str
    alignment: Alignment | None = None


def fill_mask_request(text: str, **options: Unpack[FillMaskOptions]) -> classification_pb2.FillMaskRequest:
    """Ask which tokens fit in the places of a text's masks."""
    message = classification_pb2.FillMaskRequest()
    fill(message, text=text)
    given: dict[str, Any] = {**options}
    if "targets" in given:
        given["targets"] = texts_of("targets", given["targets"])
    fill_options(message, given)
    return message


FILL_MASK = Verb("FillMask", fill_mask_request, reader(FilledMasks))
