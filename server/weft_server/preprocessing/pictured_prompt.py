"""A prompt that holds pictures, as it was read: its ids, and the files of the pictures, which nobody has seen yet."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.errors import InvalidRequest
from weft_server.source import Ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft_proto.tiling import Cut
    from weft_proto.v1 import common_pb2, generation_pb2

_FIELD = "image"
# Of one request, in all of its messages.
MAX_PICTURES = 64


class PromptPicture(NamedTuple):
    """A picture's file, the field of the request that holds it, and how it is cut into tiles, if it is."""

    image: common_pb2.Image
    field: str
    cut: Cut | None = None

    @contextmanager
    def named(self) -> Iterator[None]:
        """Let what is wrong with the picture be told by its own field."""
        try:
            yield
        except InvalidRequest as error:
            field = self.field + error.field.removeprefix(_FIELD)
            raise InvalidRequest(field, error.message.removeprefix(f"{error.field} "), error.reason) from error


@dataclass(frozen=True, slots=True, eq=False)
class PicturedPrompt(Ids):
    """Token ids with the token of a picture at each place of one, and where each stretch of a picture's begins."""

    pictures: tuple[PromptPicture, ...]
    starts: tuple[tuple[int, ...], ...]


def pictures_of(messages: generation_pb2.Messages, field: str, token: str) -> list[PromptPicture]:
    """Return the pictures of messages, in their order. In the prompt, `token` stands for one.

    Raises InvalidRequest for too many, and for a text that spells one.
    """
    found = []
    for index, turn in enumerate(messages.turns):
        place = f"{field}.turns[{index}]"
        texts = {f"{place}.content": turn.content}
        for number, part in enumerate(turn.parts):
            texts[f"{place}.parts[{number}].text"] = part.text
            if part.HasField("image"):
                found.append(PromptPicture(part.image, f"{place}.parts[{number}].image"))
        for where, text in texts.items():
            if token in text:
                why = f"spells {token!r}, which stands for a picture: send pictures as parts"
                raise InvalidRequest(where, why)
    if len(found) > MAX_PICTURES:
        raise InvalidRequest(f"{field}.turns", f"must hold at most {MAX_PICTURES} pictures, not {len(found)}")
    return found


def check_count(count: int, expected: int) -> None:
    """Raise InvalidRequest unless a prompt has as many places for pictures as there are."""
    if count != expected:
        why = f"make a prompt with places for {count} pictures, and hold {expected}"
        raise InvalidRequest("messages", why, "CHAT_REFUSED")


def pictured(
    ids: Sequence[int], pictures: Sequence[PromptPicture], image_id: int, places: Sequence[Sequence[int]]
) -> PicturedPrompt:
    """Return a prompt in which each stretch of a picture has so many places. In `ids`, image_id stands for it once.

    Raises InvalidRequest where it stands there more often, or less.
    """
    given = np.array(ids, np.int64)
    is_picture = given == image_id
    stretches = list(chain.from_iterable(places))
    check_count(int(is_picture.sum()), len(stretches))
    counts = np.ones(len(given), np.int64)
    counts[is_picture] = stretches
    expanded = np.repeat(given, counts)
    starts = iter((np.cumsum(counts) - counts)[is_picture].tolist())
    return PicturedPrompt(expanded, tuple(pictures), tuple(tuple(islice(starts, len(each))) for each in places))
