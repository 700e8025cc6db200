"""Which products are spared: they are smoothed, stay float32 or get more bits where rounding moves answers too far.

None if rounding all as they are is harmless, else few.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from weft_export.quantization.block_kinds import BlockKind
from weft_export.quantization.effects import STRENGTHS, BlockEffects, Effects
from weft_export.quantization.smoothing_sites import Site
from weft_proto.v1 import bundle_pb2

MAX_EFFECT = 0.01
"""Nats by which int8's rounding of all products may move an answer, or a token of it. With more, sites are smoothed.

If that is not enough, products stay float32.
"""
MAX_BLOCK_EFFECT = 0.02
"""The same for weights in blocks. With more, products get more bits."""
MAX_SHARE = 0.15
"""Of the weights of all products, what may stay float32 or get more bits. If a model needs more, its export says so.

Where weights are in blocks, tables of tokens do not count: any may get more bits.
"""


@dataclass(frozen=True)
class Choice:
    """What becomes of products, by path.

    strengths: of those that are smoothed.
    floats: those that stay float32.
    multiplied, divided: the factors of a product's inputs (columns of its weight) and of its outputs, or of a norm's.
    dividing: the factors of products that divide what they read by themselves.
    effects: of each product as it is then rounded, 0 if it stays float32.
    plain: of each product if it were rounded as it is.
    """

    strengths: dict[str, float] = field(default_factory=dict)
    floats: set[str] = field(default_factory=set)
    multiplied: dict[str, Tensor] = field(default_factory=dict)
    divided: dict[str, Tensor] = field(default_factory=dict)
    dividing: dict[str, Tensor] = field(default_factory=dict)
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
    """Choose by effects. sizes are the numbers of weights of all products, by path.

    What makes a vector divides it wherever that is better. A product divides what it reads only if it has to.
    """
    if sum(effects.plain.values()) <= MAX_EFFECT:
        return Choice(effects=dict(effects.plain), plain=dict(effects.plain))
    chosen = {site: _strength(effects, site) for site in sites if site.maker is not None}
    chosen |= _dividing(effects, [site for site in sites if site.maker is None], _found(effects, chosen))
    found = _found(effects, chosen)
    floats = _floats(found, sizes)
    effects_left = {path: 0.0 if path in floats else each for path, each in found.items()}
    choice = Choice(floats=floats, effects=effects_left, plain=dict(effects.plain))
    for site, strength in chosen.items():
        if strength and not floats.issuperset(site.readers):
            _take(choice, site, strength, effects.factors[site, strength])
    return choice


def _found(effects: Effects, chosen: Mapping[Site, float]) -> dict[str, float]:
    """Return the effects of all products where sites are smoothed with such strengths."""
    smoothed = {path: strength for site, strength in chosen.items() if strength for path in site.readers}
    return dict(effects.plain) | {path: effects.smoothed[path, strength] for path, strength in smoothed.items()}


def _take(choice: Choice, site: Site, strength: float, factors: Tensor) -> None:
    choice.strengths.update(dict.fromkeys(site.readers, strength))
    if site.maker is None:
        choice.dividing[site.readers[0]] = factors
    else:
        choice.divided[site.maker] = factors
        choice.multiplied.update(dict.fromkeys(site.readers, factors))


def _dividing(effects: Effects, sites: Iterable[Site], found: Mapping[str, float]) -> dict[Site, float]:
    """Return the strengths of products that divide what they read: of those that gain most, as few as are needed.

    Each gains half of its effect at least. Without outliers it would gain less, and be an operator more for that.
    """
    gains: dict[Site, float] = {}
    strengths = {site: _strength(effects, site) for site in sites}
    for site, strength in strengths.items():
        (path,) = site.readers
        if strength and effects.smoothed[path, strength] <= effects.plain[path] / 2:
            gains[site] = effects.plain[path] - effects.smoothed[path, strength]
    left, taken = sum(found.values()), {}
    for site in sorted(gains, key=gains.__getitem__, reverse=True):
        if left <= MAX_EFFECT:
            break
        left -= gains[site]
        taken[site] = strengths[site]
    return taken


def _strength(effects: Effects, site: Site) -> float:
    """Return the best strength of a site, or 0."""
    costs = {0.0: sum(effects.plain.get(path, 0.0) for path in site.readers)}
    for strength in STRENGTHS:
        if (site, strength) in effects.factors:
            costs[strength] = sum(effects.smoothed[path, strength] for path in site.readers)
    return min(costs, key=costs.__getitem__)


def _floats(effects: Mapping[str, float], sizes: Mapping[str, int]) -> set[str]:
    """Return which products stay float32, so that the rest is within MAX_EFFECT."""
    return _spared(effects, sizes, effects, sum(effects.values()), MAX_EFFECT)


def choose_kinds(
    effects: BlockEffects,
    ladders: Mapping[str, Sequence[BlockKind]],
    sizes: Mapping[str, int],
    tables: Collection[str] = (),
) -> dict[str, BlockKind]:
    """Choose the kind of each product that is rounded in blocks: the one of fewest bits, or of most.

    ladders are the ways to round products, and sizes their numbers of weights, both by path. tables are those products
    that have a row of weights for each token.
    """
    chosen = {path: ladder[0] for path, ladder in ladders.items()}
    left = sum(effects[path, kind] for path, kind in chosen.items())
    gains = {path: effects[path, ladder[0]] - effects[path, ladder[-1]] for path, ladder in ladders.items()}
    gainful = {path: gain for path, gain in gains.items() if gain > 0}
    wide = _spared(gainful, sizes, chosen, left, MAX_BLOCK_EFFECT, tables)
    return {path: ladders[path][-1] if path in wide else kind for path, kind in chosen.items()}


def room_of(effects: BlockEffects, chosen: Mapping[str, BlockKind]) -> float:
    """Return by how much more all products together may move an answer than they do as they are chosen."""
    return MAX_BLOCK_EFFECT - sum(effects[path, kind] for path, kind in chosen.items())


def enlarged(
    effects: BlockEffects, chosen: Mapping[str, BlockKind], larger: Mapping[str, BlockKind], sizes: Mapping[str, int]
) -> dict[str, BlockKind]:
    """Return which products get larger blocks: first those that lose least for each weight.

    All together stay within MAX_BLOCK_EFFECT. larger are the ways to have such blocks, by path.
    """
    room = room_of(effects, chosen)
    losses = {path: effects[path, kind] - effects[path, chosen[path]] for path, kind in larger.items()}
    taken = {}
    for path in sorted(losses, key=lambda path: losses[path] / sizes[path]):
        if losses[path] <= room:
            taken[path] = larger[path]
            room -= losses[path]
    return taken


def _spared(
    gains: Mapping[str, float],
    sizes: Mapping[str, int],
    products: Iterable[str],
    left: float,
    max_effect: float,
    free: Collection[str] = (),
) -> set[str]:
    """Spare products until what is left of the effect is within a bound: first those that give most for each weight.

    At most MAX_SHARE of the weights of all products, but that the free ones do not count.
    """
    room = MAX_SHARE * sum(sizes[path] for path in products if path not in free)
    spared: set[str] = set()
    for path in sorted(gains, key=lambda path: gains[path] / sizes[path], reverse=True):
        if left <= max_effect:
            break
        taken = 0 if path in free else sizes[path]
        if taken <= room:
            spared.add(path)
            left -= gains[path]
            room -= taken
    return spared


def report_of(
    chosen: Mapping[str, BlockKind], effects: BlockEffects, ladders: Mapping[str, Sequence[BlockKind]]
) -> bundle_pb2.Rounding:
    """Say what kinds were chosen, for the manifest."""
    products = [
        bundle_pb2.RoundedProduct(
            name=path,
            bits=kind.bits,
            block_size=kind.block_size,
            effect=effects[path, kind],
            plain_effect=effects[path, ladders[path][0]],
        )
        for path, kind in chosen.items()
    ]
    return bundle_pb2.Rounding(
        num_products=len(products),
        effect=sum(product.effect for product in products),
        plain_effect=sum(product.plain_effect for product in products),
        products=products,
    )
