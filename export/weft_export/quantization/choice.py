"""Which products are smoothed, and which stay float32: none if rounding all as they are is harmless, else few."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from weft_export.quantization.effects import STRENGTHS, Effects
from weft_export.quantization.smoothing_sites import Site
from weft_proto.v1 import bundle_pb2

MAX_EFFECT = 0.01
"""Nats by which all rounding together may move an answer, or a token of it. With more, sites are smoothed.

If that is not enough, products stay float32.
"""
MAX_FLOAT_SHARE = 0.15
"""Of the weights of all products, what may stay float32. If a model needs more, its export says so."""


@dataclass(frozen=True)
class Choice:
    """What becomes of products, by path.

    strengths: of those that are smoothed.
    floats: those that stay float32.
    multiplied, divided: the factors of a product's inputs (columns of its weight) and of its outputs, or of a norm's.
    effects: of each product as it is then rounded, 0 if it stays float32.
    plain: of each product if it were rounded as it is.
    """

    strengths: dict[str, float] = field(default_factory=dict)
    floats: set[str] = field(default_factory=set)
    multiplied: dict[str, Tensor] = field(default_factory=dict)
    divided: dict[str, Tensor] = field(default_factory=dict)
    effects: dict[str, float] = field(default_factory=dict)
    plain: dict[str, float] = field(default_factory=dict)

    def report(self) -> bundle_pb2.Rounding:
        """Say it for the manifest."""
        special = [path for path in self.effects if path in self.floats or path in self.strengths]
        return bundle_pb2.Rounding(
            num_products=len(self.effects),
            effect=sum(self.effects.values()),
            plain_effect=sum(self.plain.values()),
            products=[
                bundle_pb2.RoundedProduct(
                    name=path,
                    is_float=path in self.floats,
                    strength=self.strengths.get(path, 0.0),
                    effect=self.effects[path],
                    plain_effect=self.plain[path],
                )
                for path in special
            ],
        )


def choose(effects: Effects, sites: Sequence[Site], sizes: Mapping[str, int]) -> Choice:
    """Choose by effects. sizes are the numbers of weights of all products, by path."""
    if sum(effects.plain.values()) <= MAX_EFFECT:
        return Choice(effects=dict(effects.plain), plain=dict(effects.plain))
    chosen = {site: _strength(effects, site) for site in sites}
    found = dict(effects.plain)
    for site, strength in chosen.items():
        found |= {path: effects.smoothed[path, strength] for path in site.readers if strength}
    floats = _floats(found, sizes)
    effects_left = {path: 0.0 if path in floats else each for path, each in found.items()}
    choice = Choice(floats=floats, effects=effects_left, plain=dict(effects.plain))
    for site, strength in chosen.items():
        if strength and not floats.issuperset(site.readers):
            factors = effects.factors[site.maker, strength]
            choice.divided[site.maker] = factors
            choice.multiplied.update(dict.fromkeys(site.readers, factors))
            choice.strengths.update(dict.fromkeys(site.readers, strength))
    return choice


def _strength(effects: Effects, site: Site) -> float:
    """Return the best strength of a site, or 0."""
    costs = {0.0: sum(effects.plain[path] for path in site.readers)}
    for strength in STRENGTHS:
        if (site.maker, strength) in effects.factors:
            costs[strength] = sum(effects.smoothed[path, strength] for path in site.readers)
    return min(costs, key=costs.__getitem__)


def _floats(effects: Mapping[str, float], sizes: Mapping[str, int]) -> set[str]:
    """Take out products until the rest is within MAX_EFFECT: first those that give most for each weight."""
    left, room = sum(effects.values()), MAX_FLOAT_SHARE * sum(sizes[path] for path in effects)
    floats: set[str] = set()
    for path in sorted(effects, key=lambda path: effects[path] / sizes[path], reverse=True):
        if left <= MAX_EFFECT:
            break
        if sizes[path] <= room:
            floats.add(path)
            left -= effects[path]
            room -= sizes[path]
    return floats
