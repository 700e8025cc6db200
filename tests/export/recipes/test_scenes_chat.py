"""Photographs show their scenes, and a conversation is tokenized as a server would."""

import random

import numpy as np
import pytest

from weft_proto.chat.meter import Meter
from weft_proto.chat.prompt import PromptTemplate
from weft_proto.v1 import bundle_pb2
from weft_recipes import scenes_chat
from weft_recipes.pictures.gallery import GRID
from weft_recipes.pictures.photograph import photograph
from weft_recipes.pictures.questions import sample_scenes
from weft_recipes.pictures.scene import Scene, Thing
from weft_recipes.shared.vocabulary import END, START

RED = Thing("star", "red", "large", 0.6, 0.4, 0.2, 0.1)


def test_the_same_scene_is_the_same_photograph():
    """And another seed lights and lays it otherwise."""
    first, again, other = (np.asarray(photograph(Scene((RED,), "", seed), 64)) for seed in (4, 4, 5))

    assert (first == again).all()
    assert not (first == other).all()


@pytest.mark.parametrize("seed", range(8))
def test_a_thing_has_its_color_and_the_table_has_none(seed):
    """Whatever the light."""
    pixels = np.asarray(photograph(Scene((RED,), "", seed), 100)).astype(int)

    red, green, blue = pixels[40, 60]
    assert red > 140
    assert max(green, blue) < 110
    assert np.ptp(pixels[95, 5]) < 60
    assert pixels[95, 5].min() > 90


def test_what_is_inside_lies_on_top():
    """The inner thing is named first, and covers the outer one."""
    inner = Thing("circle", "blue", "small", 0.5, 0.5, 0.12, 0.0)
    outer = Thing("square", "yellow", "large", 0.5, 0.5, 0.4, 0.0)
    red, _, blue = np.asarray(photograph(Scene((inner, outer), "inside", 1), 64))[32, 32].astype(int)

    assert blue > red


@pytest.fixture(scope="module")
def scenes():
    """Some, with a crowd among them."""
    found = sample_scenes(40, 3, held_out=False)
    assert any(len(scene.things) > 2 for scene in found)
    return found


@pytest.fixture(scope="module")
def tokenizer(scenes):
    """Of their words."""
    return scenes_chat.tokenizer_of(scenes)


def test_only_what_the_assistant_says_is_learned(scenes, tokenizer):
    """Each answer and its end; nothing of a question, of who speaks, or of a picture's places."""
    turns = scenes_chat.converse(scenes[0], random.Random(1))
    ids, told = scenes_chat.tokenized(tokenizer, turns)

    assert len(ids) == len(told)
    assert {scenes_chat.IGNORED} == {label for token, label in zip(ids, told, strict=True) if label != token}
    learned = [label for label in told if label != scenes_chat.IGNORED]
    said = tokenizer.decode(learned, skip_special_tokens=False).replace(" ", "").split("<end>")
    assert said == [*(turn.answer.replace(" ", "") for turn in turns), ""]


def test_a_server_reads_what_was_trained(scenes, tokenizer):
    """The template makes of messages the tokens of training, but for the places of a picture."""
    turns = scenes_chat.converse(scenes[1], random.Random(2))
    ids, _ = scenes_chat.tokenized(tokenizer, turns)
    places = [tokenizer.get_vocab_size()] * GRID * GRID
    assert [START, *places] == [ids[0], *ids[2 : 2 + GRID * GRID]]
    messages = []
    for index, turn in enumerate(turns):
        text = {"type": "text", "text": turn.text}
        messages.append({"role": "user", "content": [text] if index else [{"type": "image"}, text]})
        messages.append({"role": "assistant", "content": turn.answer})
    spec = bundle_pb2.ChatSpec(template="chat_template.jinja", bos_token="<start>", eos_token="<end>")
    template = PromptTemplate(spec, scenes_chat.TEMPLATE.encode())

    asked = template.render(messages[:-1], Meter())
    read = tokenizer.encode(asked, add_special_tokens=False).ids
    image = tokenizer.token_to_id(scenes_chat.IMAGE_TOKEN)
    assert template.shows_pictures(scenes_chat.IMAGE_TOKEN)
    assert [*read[:2], image] == [*ids[:2], read[2]]
    answer = tokenizer.encode(turns[-1].answer, add_special_tokens=False).ids
    assert [*read[3:], *answer, END] == ids[2 + len(places) :]


def test_a_crowd_is_told_from_left_to_right():
    """Each thing once."""
    things = [
        Thing("star", color, "small", x, 0.5, 0.1, 0) for color, x in (("red", 0.8), ("blue", 0.2), ("green", 0.5))
    ]
    told = scenes_chat.describe(Scene(tuple(things), "", 1)).answer

    assert "a small blue star and a small green star and a small red star" == told
