"""Scenes are drawn as their captions say, and the same scene always alike."""

import random

import numpy as np

from weft_recipes.pictures.drawing import render
from weft_recipes.pictures.questions import ask, kind_of, sample_scenes
from weft_recipes.pictures.scene import Scene, Thing, sample


def test_same_seed_same_pictures():
    """A seed fixes scenes and pixels."""
    first, second = (sample(5, 1, held_out=False) for _ in range(2))

    assert first == second
    assert all(np.array_equal(render(a, 64), render(b, 64)) for a, b in zip(first, second, strict=True))
    assert first != sample(5, 2, held_out=False)


def test_relations_hold():
    """What a caption says of two things is so; of two sizes the large one comes first, unless it holds the other."""
    holds = {
        "above": lambda a, b: a.y < b.y,
        "below": lambda a, b: a.y > b.y,
        "to the left of": lambda a, b: a.x < b.x,
        "to the right of": lambda a, b: a.x > b.x,
        "inside": lambda a, b: abs(a.x - b.x) + a.radius < b.radius and abs(a.y - b.y) + a.radius < b.radius * 1.1,
    }
    pairs = [scene for scene in sample(3_000, 3, held_out=False) if len(scene.things) == 2]

    assert set(holds) == {scene.relation for scene in pairs}
    for scene in pairs:
        first, second = scene.things
        assert holds[scene.relation](first, second), scene
        if scene.relation != "inside":
            assert (first.size, second.size) != ("small", "large"), scene


def test_caption_names_everything():
    """A caption has size, colour and shape of each thing, and the relation."""
    red = Thing("circle", "red", "small", 0.5, 0.2, 0.1, 0.0)
    blue = Thing("square", "blue", "small", 0.5, 0.7, 0.1, 0.0)

    assert "a small red circle above a small blue square" == Scene((red, blue), "above", 0).caption
    assert "a small red circle at the top" == Scene((red,), "at the top", 0).caption


def test_picture_shows_the_color_where_the_thing_is():
    """The pixel at a thing's centre has its colour, and the corner of the picture is pale."""
    red = Thing("star", "red", "large", 0.6, 0.4, 0.2, 0.1)
    pixels = np.asarray(render(Scene((red,), "in the middle", 4), 100)).astype(int)

    r, g, b = pixels[40, 60]
    assert r > 150
    assert max(g, b) < 100
    assert pixels[99, 0].min() > 190


def test_things_lie_within_the_picture():
    """Nothing is cut off at the border."""
    for scene in sample(2_000, 5, held_out=False):
        for thing in scene.things:
            assert thing.radius < min(thing.x, thing.y, 1 - thing.x, 1 - thing.y)


def test_held_out_combinations_are_never_trained_on():
    """No two coloured shapes that meet in a held-out scene meet in a training scene."""

    def combination(scene):
        kinds = sorted(f"{thing.color} {thing.shape}" for thing in scene.things)
        return (*kinds, "" if len(kinds) > 1 else scene.relation)

    trained = {combination(scene) for scene in sample(20_000, 6, held_out=False)}
    held_out = {combination(scene) for scene in sample(1_000, 7, held_out=True)}

    assert not trained & held_out
    assert len(held_out) > 50


def test_same_seed_same_questions():
    """A seed fixes the scenes to ask about, and the questions."""

    def asked(seed):
        rng = random.Random(seed)
        return [(scene, ask(scene, rng)) for scene in sample_scenes(20, seed, held_out=False)]

    assert asked(1) == asked(1) != asked(2)


def test_a_question_has_one_answer():
    """What is asked twice about a scene is answered alike, what is counted is there, an answer is about one thing."""
    rng = random.Random(5)
    for scene in sample_scenes(300, 5, held_out=False):
        answers = {}
        for question in (ask(scene, rng) for _ in range(30)):
            assert question.answer == answers.setdefault(question.text, question.answer), (scene, question)
            if question.text == "how many shapes are there?":
                assert ("one", "two", "three", "four")[len(scene.things) - 1] == question.answer
            if question.about is not None:
                assert 1 == [kind_of(thing) for thing in scene.things].count(kind_of(question.about))


def test_a_relation_is_answered_as_it_is_drawn():
    """What is said to be left of a thing is left of it, and the same for all sides."""
    rng = random.Random(6)
    is_so = {
        "left of": lambda a, b: a.x < b.x,
        "right of": lambda a, b: a.x > b.x,
        "above": lambda a, b: a.y < b.y,
        "below": lambda a, b: a.y > b.y,
    }
    found = set()
    for scene in sample_scenes(400, 6, held_out=False):
        for question in (ask(scene, rng) for _ in range(10)):
            words = question.text.removesuffix("?").split(" the ")
            relation = words[0].removeprefix("what is ")
            if question.about is not None and relation in is_so and len(words) == 2:
                (other,) = (thing for thing in scene.things if kind_of(thing) == words[1])
                assert is_so[relation](question.about, other), (scene, question)
                found.add(relation)
    assert set(is_so) == found
