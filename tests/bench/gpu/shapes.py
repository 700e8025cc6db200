"""The models that are measured: generators of Llama's shape at three sizes and a translator, with random weights."""

from typing import NamedTuple


class Shape(NamedTuple):
    """Sizes.

    tokens: how many a sequence may have.
    shared: all layers read the weights of one. A step reads as much of them as if each had its own, and no cache of a
    device holds those of one. The export takes a gigabyte, where all would take a hundred.
    translates: it has an encoder of as many layers.
    """

    layers: int
    d_model: int
    heads: int
    kv_heads: int
    d_ff: int
    vocab: int
    tokens: int
    shared: bool = False
    translates: bool = False


SHAPES = {
    "tiny": Shape(2, 64, 4, 2, 96, 64, 320),
    "tiny-shared": Shape(3, 64, 4, 2, 96, 64, 320, shared=True),
    "tiny-translator": Shape(2, 64, 4, 4, 96, 64, 160, translates=True),
    "100m": Shape(12, 768, 12, 4, 2_048, 32_000, 1_024),
    "1b": Shape(16, 2_048, 32, 8, 8_192, 128_256, 1_024),
    "8b": Shape(32, 4_096, 32, 8, 14_336, 128_256, 1_024, shared=True),
    # Transformer-base of "Attention Is All You Need".
    "translator": Shape(6, 512, 8, 8, 2_048, 32_000, 256, translates=True),
}


def bundle_of(folder, name, precision):
    """Where the bundle of a shape lies."""
    return folder / name / precision / name / "1"


def paged_bundle_of(folder, name, precision):
    """Where the bundle of a shape lies whose cache lies in blocks."""
    return bundle_of(folder, name, f"{precision}-paged")
