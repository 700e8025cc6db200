"""What tests of the stand-in ask a loaded model, and what its caller sees of the answers."""

import asyncio
import io

import pytest
from PIL import Image

from loaded import Loaded, ask, golden_request
from weft_proto.v1 import common_pb2
from weft_server.loading.golden import verify_golden


def turned(data):
    """A picture's file with the picture upside down."""
    turned = io.BytesIO()
    Image.open(io.BytesIO(data)).rotate(180).save(turned, "PNG")
    return common_pb2.Image(data=turned.getvalue())


def requests_of(model):
    """The golden request of a model and others like it."""
    golden = golden_request(model)
    yield golden
    if "image" in golden:
        yield {"image": turned(golden["image"].data)}
        return
    words = golden["text"].split()
    for start, stop in ((0, 3), (1, len(words)), (2, 4)):
        yield {"text": " ".join(words[start:stop])}


def said(response):
    """What the caller sees: text and tokens, or labels with their scores."""
    if hasattr(response, "completion"):
        return response.completion.text, list(response.completion.token_ids)
    if hasattr(response, "labels"):
        return {label.label: pytest.approx(label.score, abs=0.02) for label in response.labels}
    return [(token.token, token.label) for token in response.tokens]


async def all_said(model):
    """What a loaded model answers to all its requests, which come at once."""
    return [said(each) for each in await asyncio.gather(*(ask(model, **each) for each in requests_of(model)))]


async def answers(directory, **settings):
    """The same of a bundle's model, which gives its golden answer on the way."""
    async with Loaded(directory, **{"slots": 3} | settings) as model:
        await verify_golden(model)
        return await all_said(model)
