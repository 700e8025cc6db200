"""Draws a scene as an anti-aliased picture."""

import colorsys
import math
import random

import numpy as np
from PIL import Image, ImageDraw

from weft_recipes.pictures.scene import Scene, Thing

# Hue, saturation and value of each colour; each drawing varies them a little.
_HSV = {
    "red": (0.0, 0.85, 0.85),
    "orange": (0.08, 0.95, 0.98),
    "yellow": (0.145, 0.85, 0.97),
    "green": (0.36, 0.75, 0.62),
    "blue": (0.6, 0.8, 0.85),
    "purple": (0.78, 0.6, 0.65),
    "black": (0.0, 0.0, 0.1),
}
_SUPERSAMPLING = 2


def render(scene: Scene, side: int) -> Image.Image:
    """Return the scene as an RGB picture of side x side pixels; the same scene gives the same picture."""
    rng = random.Random(scene.seed)  # noqa: S311  (pictures, not secrets)
    wide = side * _SUPERSAMPLING
    picture = _background(rng, wide)
    draw = ImageDraw.Draw(picture)
    # The outer thing of two nested ones is named last, and must be drawn first.
    for thing in reversed(scene.things):
        draw_thing(draw, thing, shade(rng, thing.color), wide)
    return picture.reduce(_SUPERSAMPLING)


def _background(rng: random.Random, side: int) -> Image.Image:
    """Return a light gradient between two pale colours, with a little noise."""
    top, bottom = (np.array(_rgb(rng.random(), rng.uniform(0, 0.1), rng.uniform(0.88, 1))) for _ in range(2))
    fade = np.linspace(0, 1, side)[:, None, None]
    noise = np.random.default_rng(rng.getrandbits(32)).normal(0, 2, (side, side, 1))
    pixels = top + (bottom - top) * fade + noise
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def _rgb(hue: float, saturation: float, value: float) -> tuple[int, int, int]:
    red, green, blue = colorsys.hsv_to_rgb(hue % 1, min(1, max(0, saturation)), min(1, max(0, value)))
    return round(red * 255), round(green * 255), round(blue * 255)


def shade(rng: random.Random, color: str) -> tuple[int, int, int]:
    """Return red, green and blue of a named colour, which each drawing varies a little."""
    hue, saturation, value = _HSV[color]
    spread = 0 if color == "black" else 0.06
    return _rgb(
        hue + rng.uniform(-0.012, 0.012), saturation + rng.uniform(-spread, spread), value + rng.uniform(-0.05, 0.05)
    )


def draw_thing(draw: ImageDraw.ImageDraw, thing: Thing, color: tuple[int, int, int] | int, side: int) -> None:
    """Fill a thing's outline on a picture of side x side pixels."""
    x, y, radius = thing.x * side, thing.y * side, thing.radius * side
    if thing.shape == "circle":
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color)
        return
    points = [
        (x + radius * r * math.sin(angle + thing.turn), y - radius * r * math.cos(angle + thing.turn))
        for angle, r in _outline(thing.shape)
    ]
    draw.polygon(points, fill=color)


def _outline(shape: str) -> list[tuple[float, float]]:
    """Return a shape's corners: clockwise angle from above, and distance from the centre."""
    quarter = math.pi / 2
    if shape == "square":
        return [((i + 0.5) * quarter, 1.0) for i in range(4)]
    if shape == "triangle":
        return [(i * math.tau / 3, 1.0) for i in range(3)]
    if shape == "star":
        return [(i * math.pi / 5, 0.42 if i % 2 else 1.0) for i in range(10)]
    assert shape == "cross", f"no outline for {shape}. This is a bug."
    arm, corner = math.atan2(0.32, 0.95), math.hypot(0.32, 0.32)
    return [
        point
        for i in range(4)
        for point in ((i * quarter - arm, 1.0), (i * quarter + arm, 1.0), ((i + 0.5) * quarter, corner))
    ]
