"""A picture and a question that an encoder reads behind it, and what a question may say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_proto.questions import asked_text, encoder_asks
from weft_server.errors import InvalidRequest
from weft_server.source import AskedPixels, Ids, Pixels

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence as Many

    from weft_proto.v1 import bundle_pb2, common_pb2

    Question = str | common_pb2.TokenIds


@dataclass(frozen=True, slots=True, eq=False)
class PicturedText(Pixels):
    """A picture and the tokens of a question about it, which an encoder reads behind its places, int64 [length].

    Padding stands behind the question. It is always as much as its own length says, so that it shows in no bit.
    """

    asked: np.ndarray = field(kw_only=True)

    @property
    def num_picture_places(self) -> int:
        """Its class tokens and its patches."""
        return self.num_class_tokens + self.grid[0] * self.grid[1]

    @property
    def num_tokens(self) -> int:
        """The places of the picture and the tokens of the question."""
        return self.num_picture_places + len(self.asked)

    @property
    def num_shown(self) -> int:
        """Its patches, or all its places where they lie nowhere."""
        return self.grid[0] * self.grid[1] or self.num_class_tokens

    @property
    def bucket(self) -> int:
        """The same with the question rounded up, as that of a text."""
        return self.num_picture_places + Ids(self.asked).bucket

    @property
    def width(self) -> int:
        """Its bucket: only those of one share a run."""
        return self.bucket

    @property
    def explained_ids(self) -> tuple[int, ...]:
        """The question."""
        return tuple(self.asked.tolist())

    @staticmethod
    def feeds(sources: Many[Any], width: int, pad_id: int) -> dict[str, np.ndarray]:
        """Pixel values, and the ids of the questions as those of texts. `width` counts the picture's places too."""
        questions = [Ids(source.asked) for source in sources]
        texts = Ids.feeds(questions, width - sources[0].num_picture_places, pad_id)
        return {**Pixels.feeds(sources, width, pad_id), **texts}


def asked_of(
    text: bundle_pb2.TextSpec,
    question: Question,
    field: str,
    read_text: Callable[[str, str], Ids],
    read_ids: Callable[[common_pb2.TokenIds, str], Ids],
) -> Ids:
    """Return the ids of a question, none where it is empty and may be. `field` holds it.

    Raises InvalidRequest for words beside one that is alone, and as the two that read do.
    """
    if not isinstance(question, str):
        return read_ids(question, field)
    if text.may_ask_nothing and not question.strip():
        return Ids(np.zeros(0, np.int64))
    try:
        sentence = asked_text(text, question)
    except ValueError as error:
        raise InvalidRequest(field, str(error)) from error
    return read_text(sentence, field)


def joined(text: bundle_pb2.TextSpec, picture: Pixels, asked: Ids, field: str) -> Pixels:
    """Return a picture with the ids of a question. Raises InvalidRequest where these have the token of a picture."""
    shown = (picture.array, picture.grid, picture.num_class_tokens)
    if not encoder_asks(text):
        return AskedPixels(*shown, tuple(asked.array.tolist()), region=picture.region)
    if (asked.array == text.question.image_id).any():
        raise InvalidRequest(field, "spells the token of a picture")
    return PicturedText(*shown, asked=asked.array, region=picture.region)
