"""Descriptions of scenes: captions that may leave things out, and which scenes each of them is true of."""

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from weft_recipes.pictures.scene import COLORS, PLACES, RADII, RELATIONS, SHAPES, Scene, Thing

_INVERSE = {
    "above": "below",
    "below": "above",
    "to the left of": "to the right of",
    "to the right of": "to the left of",
}
_CONVERSE = ("below", "to the right of")
"""Facts say these the other way round."""
_SIZES = tuple(RADII)
_WHERE = (*PLACES.values(), *RELATIONS)
_UNSAID, _NOTHING = -1, -2


@dataclass(frozen=True, slots=True)
class Description:
    """A text that names all things of a scene, and what it says.

    facts are the size, colour and shape of each of two things, and where they stand. What it leaves out is _UNSAID, and
    a thing that is not there _NOTHING. The upper, left or inner thing is the first.
    """

    text: str
    facts: tuple[int, ...]


def describe(scene: Scene, rng: random.Random) -> Description:
    """Describe a scene in one of many ways: a size may be left out, and so may where things stand."""
    sized = [rng.random() < 0.5 for _ in scene.things]
    placed = rng.random() < 0.6
    names = [_name(thing, size) for thing, size in zip(scene.things, sized, strict=True)]
    relation = scene.relation
    if len(names) == 2 and rng.random() < 0.5 and (not placed or relation in _INVERSE):
        names.reverse()
        relation = _INVERSE.get(relation, relation)
    facts = _facts(scene, sized, placed=placed)
    if len(names) == 1:
        return Description(f"{names[0]} {relation}" if placed else names[0], facts)
    return Description(f" {relation if placed else 'and'} ".join(names), facts)


def describe_fully(scene: Scene) -> Description:
    """Describe a scene by its caption, which says all."""
    return Description(scene.caption, _facts(scene, [True] * len(scene.things), placed=True))


def coloured_shapes() -> list[Description]:
    """Describe each coloured shape, alone and of whatever size and place."""
    return [
        Description(
            _colored(color, shape), (_UNSAID, COLORS.index(color), SHAPES.index(shape), *(_NOTHING,) * 3, _UNSAID)
        )
        for color in COLORS
        for shape in SHAPES
    ]


def true_of(scenes: list[Scene], descriptions: list[Description]) -> Tensor:
    """Return bool [scenes, descriptions]: whether it is true of the scene."""
    rows = torch.tensor([describe_fully(scene).facts for scene in scenes])[:, None]
    said = torch.tensor([description.facts for description in descriptions])[None]
    swapped = torch.cat((said[..., 3:6], said[..., :3], said[..., 6:]), dim=-1)
    plain, other = (((rows == each) | (each == _UNSAID)).all(dim=-1) for each in (said, swapped))
    # Without a relation, neither thing is the first.
    return plain | (other & (said[..., 6] == _UNSAID))


def _name(thing: Thing, sized: bool) -> str:  # noqa: FBT001 - of two
    return thing.words if sized else _colored(thing.color, thing.shape)


def _colored(color: str, shape: str) -> str:
    return f"{'an' if color == 'orange' else 'a'} {color} {shape}"


def _facts(scene: Scene, sized: list[bool], *, placed: bool) -> tuple[int, ...]:
    parts = [
        (_SIZES.index(thing.size) if said else _UNSAID, COLORS.index(thing.color), SHAPES.index(thing.shape))
        for thing, said in zip(scene.things, sized, strict=True)
    ]
    parts += [(_NOTHING,) * 3] * (2 - len(parts))
    relation = scene.relation
    if relation in _CONVERSE:
        parts.reverse()
        relation = _INVERSE[relation]
    return (*parts[0], *parts[1], _WHERE.index(relation) if placed else _UNSAID)
