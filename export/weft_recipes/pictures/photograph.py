"""Renders a scene as a photograph would have it: cut-outs on a table, lit from one side, by a small camera."""

import random

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from weft_recipes.pictures.drawing import draw_thing, shade
from weft_recipes.pictures.scene import Scene, Thing

_SUPERSAMPLING = 2
_SHADOW, _BEVEL, _GRAIN = 0.55, 0.35, 3.0
"""How dark a shadow is, how much brighter or darker an edge is by its side, and the camera's noise of 255."""


def photograph(scene: Scene, side: int) -> Image.Image:
    """Return the scene as an RGB picture of side x side pixels; the same scene gives the same picture."""
    rng = random.Random(scene.seed)  # noqa: S311 - pictures, not secrets
    noise = np.random.default_rng(rng.getrandbits(32))
    wide = side * _SUPERSAMPLING
    angle = rng.uniform(0, 2 * np.pi)
    light = np.array([np.cos(angle), np.sin(angle)])
    pixels = _table(rng, noise, wide)
    # The outer thing of two nested ones is named last, and must be drawn first.
    for thing in reversed(scene.things):
        _lay(pixels, thing, np.array(shade(rng, thing.color), float), light, wide)
    pixels *= _falloff(light, wide)
    pixels += noise.normal(0, _GRAIN * _SUPERSAMPLING, (wide, wide, 1))
    picture = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    # No lens is sharp to the pixel.
    return picture.filter(ImageFilter.GaussianBlur(wide / 256)).reduce(_SUPERSAMPLING)


def _table(rng: random.Random, noise: np.random.Generator, side: int) -> np.ndarray:
    """Return a muted ground float64 [side, side, 3], spotted as paper is or grained as wood."""
    warm = np.array([rng.uniform(0, 18), rng.uniform(0, 6), -rng.uniform(0, 18)])
    ground = np.full((side, side, 3), rng.uniform(170, 235)) + warm
    rough = noise.normal(0, 1, (6, 6) if rng.random() < 0.5 else (24, 2)).astype(np.float32)
    spots = Image.fromarray(rough).resize((side, side), Image.Resampling.BICUBIC)
    ground += 7 * np.asarray(spots)[..., None] * (1, 0.95, 0.85)
    return ground


def _lay(pixels: np.ndarray, thing: Thing, color: np.ndarray, light: np.ndarray, side: int) -> None:
    """Put a thing on the ground, with its shadow, and edges that are bright towards the light and dark behind."""
    stencil = Image.new("L", (side, side))
    draw_thing(ImageDraw.Draw(stencil), thing, 255, side)
    thick = thing.radius * side / 6
    shadow = np.asarray(stencil.filter(ImageFilter.GaussianBlur(thick / 2)), float) / 255
    across, down = (-light * thick).round().astype(int)
    pixels *= 1 - _SHADOW * np.roll(shadow, (down, across), (0, 1))[..., None]
    height = np.asarray(stencil.filter(ImageFilter.GaussianBlur(thick / 3)), float) / 255
    slope_down, slope_across = np.gradient(height)
    lit = 1 - _BEVEL * thick * (slope_across * light[0] + slope_down * light[1])
    where = np.asarray(stencil, float)[..., None] / 255
    # A face that stands in the light is a little brighter on its side.
    pixels += where * (color * lit[..., None].clip(0.6, 1.4) - pixels)


def _falloff(light: np.ndarray, side: int) -> np.ndarray:
    """Return how bright the lamp and the lens leave each place, float64 [side, side, 1]."""
    along = np.linspace(-1, 1, side)
    towards = along[None, :] * light[0] + along[:, None] * light[1]
    corner = along[None, :] ** 2 + along[:, None] ** 2
    bright: np.ndarray = 1 + 0.1 * towards - 0.07 * corner
    return bright[..., None]
