"""Shows a model the pictures of a prompt: each is encoded in a run with those of others, and its features are kept."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from weft_server.errors import InvalidRequest
from weft_server.sequence import Sequence
from weft_server.source import PicturedIds, SeenPicture

if TYPE_CHECKING:
    import numpy as np

    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.pictured_prompt import PicturedPrompt, PromptPicture
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.source import Source

_FIELD = "image"


def unpictured(model: Model, source: Source, field: str) -> Source:
    """Return an input that holds no pictures. Raises InvalidRequest where it has the token that stands for one."""
    text = model.manifest.text
    if text.HasField("image_id") and (source.array == text.image_id).any():
        raise InvalidRequest(field, "spells the token of a picture: send pictures as parts of messages")
    return source


async def see(call: RequestContext, model: Model, prompt: PicturedPrompt) -> PicturedIds:
    """Return a prompt with what the model sees in its pictures.

    Raises:
        Overloaded: more tokens wait than may, or its deadline would pass while pictures of others are on the way.
        RequestError: a picture was refused, or its deadline passed.
    """
    # Others hold no pixels and no features yet: memory is bounded by those who are in here, and by the queue's tokens.
    async with model.seeing.place(call.started, call.deadline):
        model.engine.check_tokens(prompt.num_tokens)
        return await _seen(call, model, prompt)


async def _seen(call: RequestContext, model: Model, prompt: PicturedPrompt) -> PicturedIds:
    # Of 64 MiB it takes a tenth of a second: not on the event loop.
    digests = await model.work(lambda _: [sha256(each.image.data).digest() for each in prompt.pictures], call.deadline)
    shown = dict(zip(digests, prompt.pictures, strict=True))
    found = {digest: model.picture_features.find(call.tenant, digest) for digest in shown}
    missing = {digest: shown[digest] for digest, features in found.items() if features is None}
    fresh = await _encoded(call, model, missing)
    for digest, each in fresh.items():
        model.picture_features.keep(call.tenant, digest, each)
    found |= fresh
    seen = []
    for start, digest in zip(prompt.starts, digests, strict=True):
        features = found[digest]
        assert features is not None, "a picture was not seen. This is a bug."
        seen.append(SeenPicture(start, digest, features))
    return PicturedIds(prompt.array, tuple(seen), model.manifest.text.source_vocab_size)


async def _encoded(call: RequestContext, model: Model, pictures: dict[bytes, PromptPicture]) -> dict[bytes, np.ndarray]:
    """Return the features of pictures, [places, width] each, by their digest.

    They wait behind what others show. The request itself has its place among those that wait already.
    """
    assert model.sight is not None, "this model sees nothing. This is a bug."
    waiting: dict[bytes, Sequence] = {}
    try:
        # All are read before one is encoded: a broken one costs no run.
        read = {
            digest: await model.work(partial(_pixels, model, picture), call.deadline)
            for digest, picture in pictures.items()
        }
        for digest, pixels in read.items():
            sequence = Sequence(
                call.request_id, pixels, None, standing=call.standing, is_counted=True, deadline=call.deadline
            )
            sequence.times.accepted = call.started
            model.sight.submit(sequence, is_promised=True)
            waiting[digest] = sequence
        for sequence in waiting.values():
            await sequence.reply.done()
    finally:
        for sequence in waiting.values():
            model.sight.cancel(sequence)
    return {digest: sequence.reply.values for digest, sequence in waiting.items()}


def _pixels(model: Model, picture: PromptPicture, wanted: Wanted) -> Source:
    try:
        return model.reader.read_image(picture.image, wanted)
    except InvalidRequest as error:
        field = picture.field + error.field.removeprefix(_FIELD)
        raise InvalidRequest(field, error.message.removeprefix(f"{error.field} "), error.reason) from error
