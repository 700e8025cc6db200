"""What a cache in blocks may be, as exporter and server both read it."""

import pytest

from weft_proto.paging import MAX_BLOCK_TOKENS, MIN_BLOCK_TOKENS, block_tokens, is_paged, paging_fault
from weft_proto.v1 import bundle_pb2

PAGED, SLOTS = bundle_pb2.STATE_KIND_PAGED_CACHE, bundle_pb2.STATE_KIND_KV_CACHE


def manifest(*, precision=bundle_pb2.PRECISION_FP16, **changes):
    """A manifest with the states of one layer, of which the second has changes."""
    state = {"kind": PAGED, "past": "k", "present": "l", "shape": [256, 2, 16]}
    states = [bundle_pb2.StateTensor(**state), bundle_pb2.StateTensor(**{**state, **changes})]
    return bundle_pb2.BundleManifest(precision=precision, states=states)


def of_blocks(tokens):
    """A manifest whose blocks all have so many tokens."""
    made = manifest()
    for state in made.states:
        state.shape[0] = tokens
    return made


def of_types(*data_types):
    """A manifest whose states have these types in turn."""
    made = manifest()
    for index, state in enumerate(made.states):
        state.data_type = data_types[index % len(data_types)]
    return made


def test_keys_and_values_of_8_bits_are_taken():
    """All states have them then."""
    assert paging_fault(of_types(bundle_pb2.DATA_TYPE_INT8)) is None


@pytest.mark.parametrize(
    "precision", [bundle_pb2.PRECISION_FP16, bundle_pb2.PRECISION_BF16, bundle_pb2.PRECISION_INT4_FP16]
)
@pytest.mark.parametrize("tokens", [MIN_BLOCK_TOKENS, 64, 128, 256, MAX_BLOCK_TOKENS])
def test_blocks_of_any_power_of_two_are_taken(precision, tokens):
    """From 16 to 1,024 tokens, at each precision that a device attends in."""
    made = of_blocks(tokens)
    made.precision = precision
    assert paging_fault(made) is None
    assert is_paged(made.states)
    assert tokens == block_tokens(made.states)


def test_slots_are_not_blocks():
    """A state of another kind makes no cache in blocks."""
    assert not is_paged([bundle_pb2.StateTensor(kind=SLOTS, shape=[2, 64, 16])])


def with_graph():
    """A manifest with a graph for mixed runs."""
    made = manifest()
    made.graphs.add(role=bundle_pb2.GRAPH_ROLE_MIXED)
    return made


def with_adapters():
    """A manifest that takes adapters."""
    made = manifest()
    made.adapters.layers.add(name="layers.0.attention.qkv")
    return made


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        (manifest(kind=SLOTS), "and others are not"),
        (manifest(precision=bundle_pb2.PRECISION_FP32), "not for fp32"),
        (of_types(bundle_pb2.DATA_TYPE_FLOAT16, bundle_pb2.DATA_TYPE_INT8), "different data types"),
        (manifest(precision=bundle_pb2.PRECISION_INT8_WEIGHTS), "not for int8-weights"),
        (with_graph(), "a MIXED graph"),
        (with_adapters(), "adapters"),
        (manifest(shape=[256, 32]), "is not [block_tokens"),
        (manifest(shape=[]), "is not [block_tokens"),
        (manifest(length_axis=1), "is not [block_tokens"),
        (manifest(encoder_output="begun"), "encoder_output"),
        (manifest(shape=[128, 2, 16]), "different numbers"),
        (of_blocks(8), "power of 2"),
        (of_blocks(48), "power of 2"),
        (of_blocks(2048), "power of 2"),
        (of_blocks(0), "power of 2"),
    ],
)
def test_what_is_no_cache_in_blocks_has_a_fault(made, fault):
    """The first thing that is wrong is said."""
    assert fault in (paging_fault(made) or "")
