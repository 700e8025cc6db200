"""Questions about scenes: what stands where, how many there are, colours, shapes, sizes, and yes or no."""

import math
import random
from dataclasses import dataclass

from weft_recipes.pictures.scene import COLORS, RADII, SHAPES, Scene, Thing, draw_scene

CROWDED_SHARE = 0.35
"""How many scenes have three or four things, which are asked for numbers, colours and presence."""
NUMBERS = ("none", "one", "two", "three", "four")
# What is asked, and what a caption would say.
RELATIONS = {
    "above": "above",
    "below": "below",
    "left of": "to the left of",
    "right of": "to the right of",
    "inside": "inside",
}
_REVERSED = {"above": "below", "below": "above", "left of": "right of", "right of": "left of"}


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a scene, its only right answer, and the thing that the answer is about, if it is one."""

    text: str
    answer: str
    about: Thing | None = None


def draw_asked_scene(rng: random.Random) -> Scene:
    """Draw a scene to ask about: as captions have it, or crowded."""
    return _crowd(rng) if rng.random() < CROWDED_SHARE else draw_scene(rng)


def sample_scenes(count: int, seed: int, *, held_out: bool) -> list[Scene]:
    """Draw scenes to ask about, of combinations that are trained on, or of those that are held out."""
    rng = random.Random(seed)  # noqa: S311 - pictures, not secrets
    scenes: list[Scene] = []
    while len(scenes) < count:
        scene = draw_asked_scene(rng)
        if scene.held_out == held_out:
            scenes.append(scene)
    return scenes


def ask(scene: Scene, rng: random.Random) -> Question:
    """Draw a question about a scene."""
    kinds = [_count, _count, _color, _shape, _presence, _size]
    if len(scene.things) == 1:
        kinds += [_place, _place, _beside]
    elif len(scene.things) == 2:
        kinds += [_beside, _beside, _beside, _whether, _whether]
    while True:
        if question := rng.choice(kinds)(scene, rng):
            return question


def kind_of(thing: Thing) -> str:
    """Return the words that tell a thing from others, such as `red circle`."""
    return f"{thing.color} {thing.shape}"


def related(scene: Scene) -> dict[tuple[str, str], Thing]:
    """Return what stands where: by a relation and what it is asked of, the thing that the answer is."""
    if len(scene.things) != 2:
        return {}
    one, other = scene.things
    relation = next(asked for asked, said in RELATIONS.items() if said == scene.relation)
    found = {(relation, kind_of(other)): one}
    if relation in _REVERSED:
        found[_REVERSED[relation], kind_of(one)] = other
    return found


def _crowd(rng: random.Random) -> Scene:
    """Return three or four things that do not touch."""
    wanted = rng.choice((3, 4))
    things: list[Thing] = []
    while len(things) < wanted:
        size = rng.choice(("small", "small", "large")) if not things else "small"
        radius = rng.uniform(*RADII[size])
        x, y = (rng.uniform(radius + 0.02, 0.98 - radius) for _ in range(2))
        if all(math.hypot(x - each.x, y - each.y) > radius + each.radius + 0.03 for each in things):
            turn = rng.uniform(-0.15, 0.15)
            # Few kinds, so that often several are alike.
            shape = rng.choice((*SHAPES, *(each.shape for each in things)))
            color = rng.choice((*COLORS, *(each.color for each in things)))
            things.append(Thing(shape, color, size, x, y, radius, turn))
    return Scene(tuple(things), "", rng.getrandbits(32))


def _beside(scene: Scene, rng: random.Random) -> Question | None:
    """Ask what stands somewhere of a thing. Half of the answers are that there is nothing, where one can choose."""
    found = related(scene)
    kinds = [kind_of(thing) for thing in scene.things]
    if len(set(kinds)) < len(kinds):
        return None
    if found and rng.random() < 0.7:
        (relation, of), thing = rng.choice(list(found.items()))
        return Question(f"what is {relation} the {of}?", thing.words, thing)
    relation, of = rng.choice(list(RELATIONS)), rng.choice(kinds)
    if (relation, of) in found or scene.relation == "inside":
        return None
    return Question(f"what is {relation} the {of}?", "nothing")


def _whether(scene: Scene, rng: random.Random) -> Question | None:
    """Ask whether one thing stands somewhere of the other."""
    one, other = rng.sample(scene.things, 2)
    if kind_of(one) == kind_of(other):
        return None
    found = related(scene)
    right = [relation for (relation, of), thing in found.items() if thing is one and of == kind_of(other)]
    relations = right if right and rng.random() < 0.5 else [each for each in RELATIONS if each not in right]
    relation = rng.choice(relations)
    answer = "yes" if relation in right else "no"
    return Question(f"is the {kind_of(one)} {relation} the {kind_of(other)}?", answer)


def _count(scene: Scene, rng: random.Random) -> Question:
    """Ask how many there are of a shape or a colour, or of all. Mostly there are some."""
    known = [thing.shape for thing in scene.things], [thing.color for thing in scene.things]
    what = rng.randrange(5)
    if what == 0:
        return Question("how many shapes are there?", NUMBERS[len(scene.things)])
    if what < 3:
        shape = rng.choice(known[0] if rng.random() < 0.75 else SHAPES)
        plural = "crosses" if shape == "cross" else f"{shape}s"
        return Question(f"how many {plural} are there?", NUMBERS[known[0].count(shape)])
    color = rng.choice(known[1] if rng.random() < 0.75 else COLORS)
    return Question(f"how many {color} shapes are there?", NUMBERS[known[1].count(color)])


def _color(scene: Scene, rng: random.Random) -> Question | None:
    """Ask for the colour of the only thing of its shape."""
    thing = rng.choice(scene.things)
    if _alike(scene, "shape", thing) > 1:
        return None
    return Question(f"what color is the {thing.shape}?", thing.color, thing)


def _shape(scene: Scene, rng: random.Random) -> Question | None:
    """Ask for the shape of the only thing of its colour."""
    thing = rng.choice(scene.things)
    if _alike(scene, "color", thing) > 1:
        return None
    return Question(f"what shape is {thing.color}?", f"a {thing.shape}", thing)


def _presence(scene: Scene, rng: random.Random) -> Question:
    """Ask whether there is a thing; where there is none, one like it often is."""
    kinds = {kind_of(thing) for thing in scene.things}
    thing = rng.choice(scene.things)
    color, shape = thing.color, thing.shape
    if rng.random() < 0.55:
        color, shape = rng.choice(((rng.choice(COLORS), shape), (color, rng.choice(SHAPES))))
    article = "an" if color == "orange" else "a"
    return Question(f"is there {article} {color} {shape}?", "yes" if f"{color} {shape}" in kinds else "no")


def _size(scene: Scene, rng: random.Random) -> Question | None:
    """Ask for the size of the only thing of its kind."""
    thing = rng.choice(scene.things)
    if [kind_of(each) for each in scene.things].count(kind_of(thing)) > 1:
        return None
    return Question(f"how large is the {kind_of(thing)}?", thing.size, thing)


def _place(scene: Scene, rng: random.Random) -> Question:
    """Ask where the only thing is."""
    (thing,) = scene.things
    named = rng.choice((kind_of(thing), thing.shape))
    return Question(f"where is the {named}?", scene.relation, thing)


def _alike(scene: Scene, what: str, thing: Thing) -> int:
    return [getattr(each, what) for each in scene.things].count(getattr(thing, what))
