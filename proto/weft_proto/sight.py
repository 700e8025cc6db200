"""Pictures in prompts: whether a model sees any, and how wide what it makes of one is."""

from collections.abc import Iterable

from weft_proto.bundle_rules import FEATURES
from weft_proto.tiling import most_places
from weft_proto.v1 import bundle_pb2

NUM_AXES = 3
"""Positions of a token, in a run that is told position offsets."""
MAX_STRETCH = 8192
"""Places of a prompt that see each other. A run computes scores of all their pairs, for each head of a layer."""


def feature_width(manifest: bundle_pb2.BundleManifest) -> int:
    """Return how many numbers a place of a picture in a prompt has. 0: prompts hold no pictures.

    Raises ValueError where the graph that makes them does not say it.
    """
    graph = next((each for each in manifest.graphs if each.role == bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER), None)
    if graph is None:
        return 0
    shape = next((list(port.shape) for port in graph.outputs if port.name == FEATURES), [])
    if len(shape) != 3 or not shape[2].isdecimal() or not 1 <= int(shape[2]) <= 2**16:
        raise ValueError(f"{graph.path} has no output {FEATURES!r} [batch, places, width] of one fixed width")
    return int(shape[2])


def offsets_positions(manifest: bundle_pb2.BundleManifest) -> bool:
    """Whether a run of a decoder is told position offsets: a place of a picture has NUM_AXES positions."""
    return sees(manifest) and bool(manifest.image.tiling.max_pixels)


def stretches(
    bidirectional: bundle_pb2.Bidirectional.ValueType, length: int, pictures: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return which stretches of a prompt see all of themselves: where each begins, and where it ends.

    pictures: the same of the places of each picture, in their order.
    """
    if bidirectional == bundle_pb2.BIDIRECTIONAL_PROMPT:
        return [(0, length)]
    return list(pictures) if bidirectional == bundle_pb2.BIDIRECTIONAL_PICTURES else []


def longest_stretch(manifest: bundle_pb2.BundleManifest) -> int:
    """Return how many places a stretch has at most that is read in both directions. 0: there is none."""
    text = manifest.text
    # A prompt leaves room for a new token.
    whole = stretches(text.bidirectional, text.max_total_tokens - 1, [(0, most_places(manifest.image))])
    return max((stop - start for start, stop in whole), default=0)


def stretch_fault(manifest: bundle_pb2.BundleManifest) -> str | None:
    """Say what is wrong with how long stretches may be that are read in both directions, or None."""
    if (longest := longest_stretch(manifest)) <= MAX_STRETCH:
        return None
    return f"text.bidirectional has stretches of up to {longest:,} places; at most {MAX_STRETCH:,} are allowed"


def sees(manifest: bundle_pb2.BundleManifest) -> bool:
    """Whether prompts may hold pictures."""
    return any(graph.role == bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER for graph in manifest.graphs)
