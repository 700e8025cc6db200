"""`embed`: vectors of texts or of pictures."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, Unpack

from weft._answers import read
from weft._brief import Brief
from weft._fields import refusal
from weft._requests import fill_options, fill_text, image_of
from weft._types import Alignment, Picture, ResolvedModel, Text, Timings, Usage
from weft._verbs.options import Options
from weft._verbs.verb import Verb
from weft.exceptions import InvalidRequest
from weft_proto.v1 import embedding_pb2


class EmbedOptions(Options, total=False):
    """What embedding takes besides: `dimensions` cuts each vector to its first numbers, by default to none.

    `explain` is for one input alone. A request has at most `Limits.max_inputs` of the model's.
    `prompt_name` names one of `Model.prompts`, which then stands before each text: "query", perhaps. By default it is
    `Model.default_prompt_name`. An empty one asks for no prompt.
    """

    dimensions: int | None
    prompt_name: str | None


@dataclass(frozen=True, slots=True, repr=False)
class Embeddings(Brief):
    """A vector for each input, in their order, and how many tokens or patches each had.

    `alignment` is None unless `explain` was asked for; its one row says what the vector was read from.
    """

    vectors: tuple[tuple[float, ...], ...]
    input_tokens: tuple[int, ...]
    usage: Usage
    timings: Timings
    model: ResolvedModel
    request_id: str
    alignment: Alignment | None = None

    def cosine(self, first: int, second: int) -> float:
        """Return the cosine of two vectors, by their places: 1 for the same direction, 0 for nothing in common."""
        one, other = self.vectors[first], self.vectors[second]
        lengths = math.hypot(*one) * math.hypot(*other)
        return math.fsum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


def embed_request(
    texts: str | Iterable[Text] | None,
    images: Picture | Iterable[Picture] | None = None,
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
    fill_options(message, {**options})
    return message


def embed_one_request(
    text: Text | None, image: Picture | None = None, **options: Unpack[EmbedOptions]
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
    vectors = tuple(tuple(each.values) for each in message.embeddings)
    return read(Embeddings, message, vectors=vectors, input_tokens=tuple(e.input_tokens for e in message.embeddings))


EMBED = Verb("Embed", embed_request, _embeddings)
# One input, and not several.
EMBED_ONE = EMBED.asked_by(embed_one_request)
