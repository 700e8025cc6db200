"""`embed`: vectors of texts or of pictures."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import mul
from os import PathLike
from typing import Any, Unpack

from weft._answers import read
from weft._brief import Brief
from weft._fields import refusal
from weft._model import VectorKind
from weft._requests import fill_options, fill_text, image_of
from weft._types import Alignment, PictureFile, ResolvedModel, Text, Timings, Usage
from weft._verbs.options import Options
from weft._verbs.verb import Verb
from weft.exceptions import InvalidRequest
from weft_proto.v1 import common_pb2, embedding_pb2


class EmbedOptions(Options, total=False):
    """What embedding takes besides: `dimensions` cuts each vector to its first numbers, by default to none.

    `explain` is for one input alone. A request has at most `Limits.max_inputs` of the model's.
    `prompt_name` names one of `Model.prompts`, which then stands before each text: "query", perhaps. By default it is
    `Model.default_prompt_name`. An empty one asks for no prompt.
    `kinds` are those of `Model.vector_kinds` that the answer has: "whole", "tokens" or "weights". By default it is the
    first of these.
    """

    dimensions: int | None
    prompt_name: str | None
    kinds: Iterable[str] | None


@dataclass(frozen=True, slots=True, repr=False)
class Embeddings(Brief):
    """A vector for each input, in their order, and how many tokens or patches each had.

    `alignment` is None unless `explain` was asked for; its one row says what the vector was read from.

    What was not asked for is empty. `token_vectors` has of each input a vector for each of its `token_ids`, and
    `token_weights` its tokens' weights by their ids.
    """

    vectors: tuple[tuple[float, ...], ...]
    input_tokens: tuple[int, ...]
    usage: Usage
    timings: Timings
    model: ResolvedModel
    request_id: str
    alignment: Alignment | None = None
    token_vectors: tuple[tuple[tuple[float, ...], ...], ...] = ()
    token_ids: tuple[tuple[int, ...], ...] = ()
    token_weights: tuple[dict[int, float], ...] = ()

    def maxsim(self, query: int, document: int) -> float:
        """Return how well a document matches a query, by their places ("ColBERT", Khattab and Zaharia 2020).

        It is the sum over the query's tokens of the largest product with a vector of the document. Of many texts,
        `Client.score` is faster.
        """
        asked, given = self.token_vectors[query], self.token_vectors[document]
        if not asked or not given:
            raise InvalidRequest("a score needs vectors of tokens: ask for them with kinds=['tokens']")
        return math.fsum(max(math.fsum(map(mul, one, other)) for other in given) for one in asked)

    def cosine(self, first: int, second: int) -> float:
        """Return the cosine of two vectors, by their places: 1 for the same direction, 0 for nothing in common."""
        one, other = self.vectors[first], self.vectors[second]
        lengths = math.hypot(*one) * math.hypot(*other)
        return math.fsum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


def embed_request(
    texts: str | Iterable[Text] | None,
    images: PictureFile | Iterable[PictureFile] | None = None,
    **options: Unpack[EmbedOptions],
) -> embedding_pb2.EmbedRequest:
    """Ask for the vectors of some texts or of some pictures. One of them may stand alone."""
    message = embedding_pb2.EmbedRequest()
    if (texts is None) == (images is None):
        raise InvalidRequest("give either texts or images to embed", reason="WRONG_INPUT_KIND")
    if texts is not None:
        for index, text in enumerate(_each("texts", [texts] if isinstance(texts, str) else texts)):
            with _within(f"inputs[{index}]."):
                fill_text(message.inputs.add(), text)
    elif images is not None:
        is_one = isinstance(images, bytes | bytearray | memoryview | str | PathLike)
        for index, image in enumerate(_each("images", [images] if is_one else images)):
            with _within(f"inputs[{index}]."):
                message.inputs.add().image.CopyFrom(image_of(image))
    kinds = options.pop("kinds", None)
    for index, kind in enumerate(_each("kinds", [] if kinds is None else kinds)):
        message.kinds.append(_kind_of(index, kind))
    fill_options(message, {**options})
    return message


def _kind_of(index: int, kind: Any) -> common_pb2.VectorKind.ValueType:
    known = [each for each in VectorKind if each is not VectorKind.UNSPECIFIED]
    if kind not in known:
        raise refusal(f"kinds[{index}]", f"must be one of {', '.join(known)}, not {kind!r:.40}")
    return common_pb2.VectorKind.Value(f"VECTOR_KIND_{VectorKind(kind).name}")


def embed_one_request(
    text: Text | None, image: PictureFile | None = None, **options: Unpack[EmbedOptions]
) -> embedding_pb2.EmbedRequest:
    """Do as `embed_request` for one text or one picture."""
    return embed_request(None if text is None else [text], None if image is None else [image], **options)


@contextmanager
def _within(place: str) -> Iterator[None]:
    """Name what is refused by its place in the request."""
    try:
        yield
    except InvalidRequest as error:
        (violation,) = error.field_violations
        raise refusal(place + violation.field, violation.description, error.reason) from None


def _each(field: str, inputs: Any) -> Iterable[Any]:
    if isinstance(inputs, bytes | bytearray | Mapping) or not isinstance(inputs, Iterable):
        raise refusal(field, f"must be a list of inputs, not {type(inputs).__name__}")
    return inputs


def _embeddings(message: embedding_pb2.EmbedResponse) -> Embeddings:
    """Read the vectors of all inputs."""
    all_of = message.embeddings
    return read(
        Embeddings,
        message,
        vectors=tuple(tuple(each.values) for each in all_of),
        input_tokens=tuple(each.input_tokens for each in all_of),
        token_vectors=tuple(_rows(each.token_vectors, len(each.token_ids)) for each in all_of),
        token_ids=tuple(tuple(each.token_ids) for each in all_of),
        token_weights=tuple({pair.token_id: pair.weight for pair in each.weights} for each in all_of),
    )


def _rows(values: Iterable[float], count: int) -> tuple[tuple[float, ...], ...]:
    """Return so many vectors that lie one behind the other."""
    flat = tuple(values)
    width = len(flat) // max(1, count)
    return tuple(flat[row * width : (row + 1) * width] for row in range(count))


EMBED = Verb("Embed", embed_request, _embeddings)
# One input, and not several.
EMBED_ONE = EMBED.asked_by(embed_one_request)
