"""What a cache in blocks may be: exporter and server both keep these rules, which bundle.proto states in words."""

from collections.abc import Sequence

from weft_proto.bundle_rules import precision_name
from weft_proto.v1 import bundle_pb2

# Inputs of a DECODER with states of kind PAGED_CACHE, in their order, before its past tensors.
PAGED_PORTS = (
    "input_ids",
    "positions",
    "cumulative_lengths",
    "past_lengths",
    "block_table",
    "slot_mapping",
    "attention_bounds",
)
# Precisions that a device has kernels in.
PAGED_PRECISIONS = frozenset({bundle_pb2.PRECISION_FP16, bundle_pb2.PRECISION_BF16, bundle_pb2.PRECISION_INT4_FP16})
# Of the largest heads that flash attention reads.
MAX_HEAD_DIM = 256
# Of the tokens of a block, a power of 2.
MIN_BLOCK_TOKENS = 16
MAX_BLOCK_TOKENS = 1024


def is_paged(states: Sequence[bundle_pb2.StateTensor]) -> bool:
    """Whether a decoder keeps keys and values in blocks."""
    return any(state.kind == bundle_pb2.STATE_KIND_PAGED_CACHE for state in states)


def block_tokens(states: Sequence[bundle_pb2.StateTensor]) -> int:
    """Return how many tokens a block has, of states that are paged and have no fault."""
    return states[0].shape[0]


def paging_fault(manifest: bundle_pb2.BundleManifest) -> str | None:
    """Say what is wrong with a bundle whose states are paged, or None."""
    states = manifest.states
    sizes = {state.shape[0] if state.shape else 0 for state in states}
    faults = {
        "some states are of kind paged_cache and others are not": any(
            state.kind != bundle_pb2.STATE_KIND_PAGED_CACHE for state in states
        ),
        f"a paged_cache is for fp16, bf16 and int4-fp16, not for {precision_name(manifest.precision)}": (
            manifest.precision not in PAGED_PRECISIONS
        ),
        "a MIXED graph is not for a paged_cache": any(
            graph.role == bundle_pb2.GRAPH_ROLE_MIXED for graph in manifest.graphs
        ),
        "adapters are not for a paged_cache": manifest.HasField("adapters"),
        "a paged_cache is not [block_tokens, kv_heads, head_dim] with length_axis 0": any(
            len(state.shape) != 3 or state.length_axis for state in states
        ),
        "a paged_cache has an encoder_output": any(state.encoder_output for state in states),
        "blocks of two states have different numbers of tokens": len(sizes) > 1,
        "blocks of two states have different data types": len({state.data_type for state in states}) > 1,
        f"a block does not have a power of 2 of tokens, from {MIN_BLOCK_TOKENS} to {MAX_BLOCK_TOKENS}": any(
            not MIN_BLOCK_TOKENS <= size <= MAX_BLOCK_TOKENS or size & (size - 1) for size in sizes
        ),
    }
    return next((fault for fault, is_there in faults.items() if is_there), None)
