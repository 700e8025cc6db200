"""`score`: how probable a model finds a target, or how well two texts match."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from weft._answers import reader
from weft._brief import Brief
from weft._requests import bytes_of, fill_options, fill_text, two_of
from weft._types import ResolvedModel, Text, Timings, TopToken, Usage
from weft._verbs.verb import Verb
from weft_proto.recordings import is_recording
from weft_proto.v1 import score_pb2


class ScoreOptions(TypedDict, total=False):
    """What scoring takes.

    `model` must name the model. `model_version`, `version_label`, `adapter` and `request_id` are as in `Options`.
    `source_language` and `target_language` are as for a translation. `num_top_tokens` asks for so many of the most
    probable tokens at each place, at most 20.
    """

    model: str
    model_version: int | None
    version_label: str | None
    adapter: str
    source_language: str
    target_language: str
    num_top_tokens: int
    request_id: str


@dataclass(frozen=True, slots=True, repr=False)
class TokenMatch(Brief):
    """The token of a document that is nearest to a token of a query: its place, and the product of both vectors."""

    place: int
    score: float


@dataclass(frozen=True, slots=True, repr=False)
class Score(Brief):
    """How probable a target is: `total` is the sum of `token_log_probs`.

    Those are natural logarithms of each token's probability, given the source and the tokens before it. `tokens` are
    text pieces to show. `top_tokens` are the most probable tokens at each place, best first; empty unless
    `num_top_tokens` asked for them.

    Of a model with a vector for each token, `total` is how well the source, a query, matches the target, a document.
    `tokens` are then those of the query, and `matches` says of each which of `target_tokens` it met. There are no
    probabilities.
    """

    total: float
    token_ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    tokens: tuple[str, ...]
    usage: Usage
    timings: Timings
    model: ResolvedModel
    request_id: str
    top_tokens: tuple[tuple[TopToken, ...], ...] = ()
    matches: tuple[TokenMatch, ...] = ()
    target_token_ids: tuple[int, ...] = ()
    target_tokens: tuple[str, ...] = ()


def score_request(source: Text | bytes | Path, target: Text, **options: Unpack[ScoreOptions]) -> score_pb2.ScoreRequest:
    """Ask how probable a target is behind a source: a text, token ids, or a file as its path or its bytes.

    The file is a recording if it begins as one, else a picture.
    """
    message = score_pb2.ScoreRequest()
    if isinstance(source, bytes | Path):
        data = bytes_of("source", source, "image")
        (message.audio if is_recording(data) else message.image).data = data
    else:
        fill_text(message, source)
    fill_text(message, target, "target_text", "target_ids")
    fill_options(message, {**options})
    return message


def score_pair_request(
    pair: tuple[Text | bytes | Path, Text], **options: Unpack[ScoreOptions]
) -> score_pb2.ScoreRequest:
    """Do as `score_request` with a source and its target in one."""
    source, target = two_of(pair, "pairs", "a source and a target")
    return score_request(source, target, **options)


SCORE = Verb("Score", score_request, reader(Score))
# Two arguments in one.
SCORE_PAIR = SCORE.asked_by(score_pair_request)
