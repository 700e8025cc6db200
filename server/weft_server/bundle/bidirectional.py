"""What a manifest must say where stretches of its prompts are read in both directions."""

from weft_proto.bundle_rules import HOST_PRECISIONS
from weft_proto.sight import stretch_fault
from weft_proto.v1 import bundle_pb2
from weft_server.errors import require


def verify_bidirectional(manifest: bundle_pb2.BundleManifest, *, seeing: bool) -> None:
    """Refuse a manifest that does not say which stretches these are, or whose stretches no run could read."""
    there = any(graph.role == bundle_pb2.GRAPH_ROLE_BIDIRECTIONAL for graph in manifest.graphs)
    stated = manifest.text.bidirectional
    known = stated in bundle_pb2.Bidirectional.values()
    require(known, f"text.bidirectional {stated} is unknown")
    require(there == bool(stated), "text.bidirectional is for bundles with a BIDIRECTIONAL graph, and needed there")
    if not there:
        return
    require(seeing, "a BIDIRECTIONAL graph is for bundles with an IMAGE_ENCODER graph")
    require(manifest.precision in HOST_PRECISIONS, "a BIDIRECTIONAL graph is not for fp16, bf16 and int4-fp16")
    caches = all(state.kind == bundle_pb2.STATE_KIND_KV_CACHE for state in manifest.states)
    require(caches, "a BIDIRECTIONAL graph is for models whose states are all of kind KV_CACHE")
    require(not manifest.image.tiling.max_pixels, "a BIDIRECTIONAL graph is not for pictures of any size")
    fault = stretch_fault(manifest)
    require(fault is None, str(fault))
