"""How many bits each product gets: as few as there are, and more where that costs the answers too much."""

from collections.abc import Mapping, Sequence

from weft_export.quantization.block_kinds import BlockKind
from weft_proto.v1 import bundle_pb2

MAX_EFFECT = 0.02
"""Nats by which rounding in blocks may move an answer, or a token of it. With more, products get more bits."""
MAX_WIDE_SHARE = 0.15
"""Of the weights of all products, what may get more bits. If a model needs more, its export says so."""

Effects = Mapping[tuple[str, BlockKind], float]


def choose_kinds(
    effects: Effects, ladders: Mapping[str, Sequence[BlockKind]], sizes: Mapping[str, int]
) -> dict[str, BlockKind]:
    """Choose the kind of each product: first those get more bits that then give most for each weight.

    ladders are the ways to round products, and sizes their numbers of weights, both by path.
    """
    chosen = {path: ladder[0] for path, ladder in ladders.items()}
    gains = {path: effects[path, ladder[0]] - effects[path, ladder[-1]] for path, ladder in ladders.items()}
    left = sum(effects[path, kind] for path, kind in chosen.items())
    room = MAX_WIDE_SHARE * sum(sizes[path] for path in chosen)
    for path in sorted(gains, key=lambda path: gains[path] / sizes[path], reverse=True):
        if left <= MAX_EFFECT:
            break
        if gains[path] > 0 and sizes[path] <= room:
            chosen[path] = ladders[path][-1]
            left -= gains[path]
            room -= sizes[path]
    return chosen


def report_of(
    chosen: Mapping[str, BlockKind], effects: Effects, ladders: Mapping[str, Sequence[BlockKind]]
) -> bundle_pb2.Rounding:
    """Say it for the manifest."""
    products = [
        bundle_pb2.RoundedProduct(
            name=path, bits=kind.bits, effect=effects[path, kind], plain_effect=effects[path, ladders[path][0]]
        )
        for path, kind in chosen.items()
    ]
    return bundle_pb2.Rounding(
        num_products=len(products),
        effect=sum(product.effect for product in products),
        plain_effect=sum(product.plain_effect for product in products),
        products=products,
    )
