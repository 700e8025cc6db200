"""Scenes of one or two coloured shapes, and the one caption that each scene has."""

import math
import random
import zlib
from dataclasses import dataclass

SHAPES = ("circle", "square", "triangle", "star", "cross")
COLORS = ("red", "orange", "yellow", "green", "blue", "purple", "black")
RADII = {"small": (0.11, 0.13), "large": (0.19, 0.22)}
"""Radius of the surrounding circle by size, as a share of the picture's side; nested things are somewhat larger."""
HELD_OUT_SHARE = 10
"""One in so many pairs of coloured shapes (or of a coloured shape and its place) is never trained on."""

# Where a lone shape stands, by column and row of a 3 x 3 grid.
PLACES = {
    (0, 0): "in the top left corner",
    (1, 0): "at the top",
    (2, 0): "in the top right corner",
    (0, 1): "on the left",
    (1, 1): "in the middle",
    (2, 1): "on the right",
    (0, 2): "in the bottom left corner",
    (1, 2): "at the bottom",
    (2, 2): "in the bottom right corner",
}
RELATIONS = ("above", "below", "to the left of", "to the right of", "inside")


@dataclass(frozen=True, slots=True)
class Thing:
    """A shape in a scene: its centre and radius as shares of the picture's side, its rotation in radians."""

    shape: str
    color: str
    size: str
    x: float
    y: float
    radius: float
    turn: float

    @property
    def words(self) -> str:
        """How a caption names it."""
        return f"a {self.size} {self.color} {self.shape}"


@dataclass(frozen=True, slots=True)
class Scene:
    """One thing at a place, or two in a relation: `things` in the caption's order, `relation` what is said of them.

    Of two things the larger is named first, and of two of one size the upper or the left one; a thing inside another is
    named before it. `seed` settles shades and background.
    """

    things: tuple[Thing, ...]
    relation: str
    seed: int

    @property
    def caption(self) -> str:
        """The caption, which says all that is asked of a model."""
        first, *others = self.things
        return " ".join((first.words, self.relation, *(other.words for other in others)))

    @property
    def held_out(self) -> bool:
        """Whether its combination is kept from training: which coloured shapes meet, or which one stands where."""
        kinds = sorted(f"{thing.color} {thing.shape}" for thing in self.things)
        key = "|".join(kinds if len(kinds) > 1 else (*kinds, self.relation))
        return zlib.crc32(key.encode()) % HELD_OUT_SHARE == 0


def draw_scene(rng: random.Random) -> Scene:
    """Draw a scene; seven in ten have two things."""
    chance = rng.random()
    if chance < 0.3:
        return _alone(rng)
    return _nested(rng) if chance < 0.45 else _pair(rng)


def sample(count: int, seed: int, *, held_out: bool) -> list[Scene]:
    """Draw scenes until `count` of them are in the wanted part, held out or not."""
    rng = random.Random(seed)  # noqa: S311  (pictures, not secrets)
    scenes: list[Scene] = []
    while len(scenes) < count:
        scene = draw_scene(rng)
        if scene.held_out == held_out:
            scenes.append(scene)
    return scenes


def _thing(rng: random.Random, size: str, x: float, y: float, radius: float, shapes: tuple[str, ...] = SHAPES) -> Thing:
    return Thing(rng.choice(shapes), rng.choice(COLORS), size, x, y, radius, rng.uniform(-0.15, 0.15))


def _size(rng: random.Random) -> tuple[str, float]:
    size = rng.choice(tuple(RADII))
    return size, rng.uniform(*RADII[size])


def _alone(rng: random.Random) -> Scene:
    size, radius = _size(rng)
    (column, row), place = rng.choice(tuple(PLACES.items()))
    low, high = radius + 0.02, 0.98 - radius

    def along(cell: int) -> float:
        return min(high, max(low, (low, 0.5, high)[cell] + rng.uniform(-0.06, 0.06)))

    return Scene((_thing(rng, size, along(column), along(row), radius),), place, rng.getrandbits(32))


def _nested(rng: random.Random) -> Scene:
    radius, inner_radius = rng.uniform(0.3, 0.34), rng.uniform(0.14, 0.16)
    x, y = (rng.uniform(radius + 0.02, 0.98 - radius) for _ in range(2))
    outer = _thing(rng, "large", x, y, radius, ("circle", "square"))
    shift = radius * 0.15
    inner = outer
    while inner.color == outer.color:
        # Of other shapes so small, before another colour, the model of this recipe's size learns too few.
        inner_x, inner_y = (centre + rng.uniform(-shift, shift) for centre in (x, y))
        inner = _thing(rng, "small", inner_x, inner_y, inner_radius, ("circle", "star"))
    return Scene((inner, outer), "inside", rng.getrandbits(32))


def _pair(rng: random.Random) -> Scene:
    while True:
        (size, radius), (other_size, other_radius) = _size(rng), _size(rng)
        x, y, other_x, other_y = (rng.uniform(r + 0.02, 0.98 - r) for r in (radius, radius, other_radius, other_radius))
        dx, dy = other_x - x, other_y - y
        apart = math.hypot(dx, dy) > radius + other_radius + 0.03
        # Nothing diagonal: the relation must be plain to see.
        if apart and not 0.5 < abs(dx) / max(abs(dy), 1e-9) < 2:
            break
    one = _thing(rng, size, x, y, radius)
    other = _thing(rng, other_size, other_x, other_y, other_radius)
    vertical = abs(dy) > abs(dx)
    one_is_before = (dy if vertical else dx) > 0
    one_first = size == "large" if size != other_size else one_is_before
    before_words, after_words = ("above", "below") if vertical else ("to the left of", "to the right of")
    relation = before_words if one_first == one_is_before else after_words
    return Scene((one, other) if one_first else (other, one), relation, rng.getrandbits(32))
