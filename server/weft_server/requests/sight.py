"""Shows a model the pictures of a prompt: each is encoded in a run with those of others, and its features are kept."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from weft_proto.fitting import Fitted
from weft_proto.tiling import Tiled
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.pictured_prompt import PicturedPrompt
from weft_server.preprocessing.tiles import arranged
from weft_server.requests.pictured_ids import PicturedIds, SeenPicture, offsets_of
from weft_server.sequence import Sequence

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from weft_server.models.explainer import Explainer
    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.pictured_prompt import PromptPicture
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.source import Source


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
    async with model.seeing.place(call.started, call.deadline, call.standing):
        model.engine.check_tokens(prompt.num_tokens)
        return await _seen(call, model, prompt, call.started)


@asynccontextmanager
async def seen_again(
    call: RequestContext, model: Model, explainer: Explainer, source: Source
) -> AsyncGenerator[Source]:
    """Yield what a finished answer was to. A prompt has again what the model sees in its pictures, and their grids.

    Few requests at once hold that. Most features are still kept; others are made anew, with the same bits.

    Raises:
        RequestError: its deadline passed, or would while pictures of others are on the way.
    """
    if not isinstance(source, PicturedPrompt):
        yield source
        return
    async with explainer.seeing_again.turn(call.standing, call.deadline):
        # It waits from now on. Before, its answer took its time.
        async with model.seeing.place(started := time.monotonic(), call.deadline, call.standing):
            seen = await _seen(call, model, source, started)
        views = model.reader.views
        grids = await model.work(lambda wanted: [views.grids(each, wanted) for each in source.pictures], call.deadline)
        stretches = chain.from_iterable(grids)
        laid = (each._replace(grids=some) for each, some in zip(seen.pictures, stretches, strict=True))
        yield replace(seen, pictures=tuple(laid))


async def _seen(call: RequestContext, model: Model, prompt: PicturedPrompt, started: float) -> PicturedIds:
    # Of 64 MiB it takes a tenth of a second: not on the event loop.
    keys = await model.work(lambda _: [_key(each) for each in prompt.pictures], call.deadline)
    shown = dict(zip(keys, prompt.pictures, strict=True))
    found = {key: model.picture_features.find(call.tenant, key) for key in shown}
    missing = {key: shown[key] for key, features in found.items() if features is None}
    fresh = await _encoded(call, model, missing, started)
    for key, each in fresh.items():
        model.picture_features.keep(call.tenant, key, each)
    found |= fresh
    seen = []
    for picture, (starts, key) in enumerate(zip(prompt.starts, keys, strict=True)):
        features = found[key]
        assert features is not None, "a picture was not seen. This is a bug."
        size = len(features) // len(starts)
        for number, start in enumerate(starts):
            part = features[number * size : (number + 1) * size]
            cut = prompt.pictures[picture].cut
            cells = cut.grid if isinstance(cut, Fitted) else None
            seen.append(SeenPicture(start, b"%d " % number + key, part, picture, cells=cells))
    offsets = offsets_of(len(prompt.array), seen)
    return PicturedIds(prompt.array, tuple(seen), model.manifest.text.source_vocab_size, prompt, offsets)


def _key(picture: PromptPicture) -> bytes:
    """Return the digest of a picture's file, and whether it is read in tiles."""
    return sha256(picture.image.data).digest() + (b"tiles" if picture.cut else b"")


async def _encoded(
    call: RequestContext, model: Model, pictures: dict[bytes, PromptPicture], started: float
) -> dict[bytes, np.ndarray]:
    """Return the features of pictures, [places, width] each, by their key.

    They wait behind what others show. The request itself has its place among those that wait already.
    """
    assert model.sight is not None, "this model sees nothing. This is a bug."
    waiting: dict[bytes, list[Sequence]] = {}
    try:
        # All are read before one is encoded: a broken one costs no run.
        read = {
            key: await model.work(partial(model.reader.views.read, picture), call.deadline)
            for key, picture in pictures.items()
        }
        for key, views in read.items():
            waiting[key] = []
            for view in views:
                sequence = Sequence(
                    call.request_id, view, None, standing=call.standing, is_counted=True, deadline=call.deadline
                )
                sequence.times.accepted = started
                model.sight.submit(sequence, is_promised=True)
                waiting[key].append(sequence)
        for sequence in (each for views in waiting.values() for each in views):
            await sequence.reply.done()
        return {
            key: await model.work(partial(_features, picture, waiting[key]), call.deadline)
            if picture.cut
            else waiting[key][0].reply.values
            for key, picture in pictures.items()
        }
    finally:
        for sequence in (each for views in waiting.values() for each in views):
            model.sight.cancel(sequence)


def _features(picture: PromptPicture, tiles: list[Sequence], _: Wanted) -> np.ndarray:
    assert picture.cut is not None, "a picture without tiles is put together. This is a bug."
    found = [each.reply.values for each in tiles]
    return arranged(np.stack(found), picture.cut) if isinstance(picture.cut, Tiled) else np.concatenate(found)
