"""Chats with small pictures, for loaded models that see."""

import asyncio
import io

import numpy as np
from PIL import Image

from loaded import Loaded, ask
from weft_proto.v1 import common_pb2, generation_pb2

DECODING = common_pb2.Decoding(max_new_tokens=12, greedy=common_pb2.Greedy())


def noise(seed, width, height):
    """A PNG of noise around a colour of its own."""
    rng = np.random.default_rng(seed)
    pixels = np.clip(rng.integers(0, 256, 3) + rng.normal(0, 60, (height, width, 3)), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


PICTURES = [noise(seed, *size) for seed, size in enumerate(((30, 22), (22, 40), (64, 16)))]


def turn(*parts, role="user"):
    """A message of texts and pictures."""
    message = generation_pb2.Message(role=role)
    for part in parts:
        if isinstance(part, str):
            message.parts.add(text=part)
        else:
            message.parts.add().image.data = part
    return message


def chat(*turns):
    """Messages; a tuple is what a user says."""
    return generation_pb2.Messages(turns=[turn(*each) if isinstance(each, tuple) else each for each in turns])


def run(repository, name, use, **settings):
    """Do something with a loaded model."""

    async def main():
        async with Loaded(repository / name / "1", **{"slots": 4, "lanes": 1} | settings) as model:
            return await use(model)

    return asyncio.run(main())


async def answer(model, messages, tenant=""):
    """The tokens of an answer, and how many its prompt has."""
    completion = (await ask(model, tenant, messages=messages, decoding=DECODING)).completion
    return list(completion.token_ids), completion.usage.input_tokens
