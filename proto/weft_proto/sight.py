"""Pictures in prompts: whether a model sees any, and how wide what it makes of one is."""

from weft_proto.bundle_rules import FEATURES
from weft_proto.v1 import bundle_pb2

NUM_AXES = 3
"""Positions of a token, in a run that is told position offsets."""


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


def sees(manifest: bundle_pb2.BundleManifest) -> bool:
    """Whether prompts may hold pictures."""
    return any(graph.role == bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER for graph in manifest.graphs)
