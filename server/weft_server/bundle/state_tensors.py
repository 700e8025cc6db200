"""What a manifest must say of a decoder's state tensors."""

import math

from weft_proto.bundle_rules import FLOAT_TYPE, HOST_PRECISIONS, MAX_STATE_ELEMENTS, ROUNDED
from weft_proto.paging import is_paged, paging_fault
from weft_proto.questions import encoder_asks, picture_places
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2
from weft_server.errors import require

_KINDS = set(bundle_pb2.StateKind.values()) - {bundle_pb2.STATE_KIND_UNSPECIFIED}


def verify_states(manifest: bundle_pb2.BundleManifest) -> None:
    """Refuse states that don't fit the task, the precision, the text or each other."""
    states = manifest.states
    if not TASKS[manifest.task].writes_text:
        require(not states, "states are for tasks that produce text")
        return
    require(states, "states are missing")
    ports = [name for state in states for name in (state.past, state.present) if name]
    require(len(set(ports)) == len(ports), "two states share a port")
    if is_paged(states):
        require(TASKS[manifest.task].takes_prompt, "a paged_cache is for generate")
        fault = paging_fault(manifest)
        require(fault is None, str(fault))
    for state in states:
        _verify_state(state, manifest)
    begun = {bool(state.encoder_output) for state in states if state.kind == bundle_pb2.STATE_KIND_KV_CACHE}
    require(len(begun) <= 1, "an encoder fills one kv_cache and not another")
    recurs = any(state.kind == bundle_pb2.STATE_KIND_RECURRENT for state in states)
    mixes = any(graph.role == bundle_pb2.GRAPH_ROLE_MIXED for graph in manifest.graphs)
    require(not (recurs and mixes), "a MIXED graph is not for a model with a recurrent state")


def _verify_state(state: bundle_pb2.StateTensor, manifest: bundle_pb2.BundleManifest) -> None:
    name = f"state {state.past!r}"
    require(state.kind in _KINDS, f"{name} is of unknown kind {state.kind}")
    require(state.data_type in _data_types(state, manifest), f"{name} is not of the bundle's precision")
    require(state.past, "a state has no past")
    returned = state.present or state.kind == bundle_pb2.STATE_KIND_MEMORY
    require(returned, f"{name} has no present, and is no memory")
    require(state.shape and all(state.shape), f"{name} has a zero or no sizes in its shape")
    elements = math.prod(state.shape)
    require(elements <= MAX_STATE_ELEMENTS, f"{name} has {elements:,} elements, over {MAX_STATE_ELEMENTS:,}")
    has_encoder = not TASKS[manifest.task].takes_prompt
    require(has_encoder or not state.encoder_output, f"{name} waits for an encoder that is not there")
    if state.kind in {bundle_pb2.STATE_KIND_RECURRENT, bundle_pb2.STATE_KIND_PAGED_CACHE}:
        return
    require(state.length_axis < len(state.shape), f"{name} has length_axis {state.length_axis} outside its shape")
    if state.kind == bundle_pb2.STATE_KIND_KV_CACHE:
        may_begin = TASKS[manifest.task].takes_question
        require(may_begin or not state.encoder_output, f"{name} is a kv_cache and is not filled by an encoder")
        _verify_cache(name, state, manifest.text.max_total_tokens)
    else:
        _verify_memory(name, state, _source_length(manifest))


def _data_types(state: bundle_pb2.StateTensor, manifest: bundle_pb2.BundleManifest) -> set[int]:
    """The data types that a state may have. Caches in blocks may be rounded.

    Where weights are rounded on a CPU a state may be, unless each run replaces it.
    """
    allowed: set[int] = {FLOAT_TYPE[manifest.precision]}
    rounds = manifest.precision in ROUNDED & HOST_PRECISIONS and state.kind != bundle_pb2.STATE_KIND_RECURRENT
    if rounds or state.kind == bundle_pb2.STATE_KIND_PAGED_CACHE:
        allowed.add(bundle_pb2.DATA_TYPE_INT8)
    return allowed


def _source_length(manifest: bundle_pb2.BundleManifest) -> int:
    """How many positions the longest source has that an encoder reads."""
    if TASKS[manifest.task].takes_image:
        asked = manifest.text.max_source_tokens if encoder_asks(manifest.text) else 0
        return picture_places(manifest.image) + asked
    if TASKS[manifest.task].takes_audio:
        return manifest.audio.num_positions
    return manifest.text.max_source_tokens


def _verify_cache(name: str, state: bundle_pb2.StateTensor, total: int) -> None:
    shaped = len(state.shape) == 3 and state.length_axis == 1
    require(shaped, f"{name} is a kv_cache and not [kv_heads, max_len, head_dim] with length_axis 1")
    capacity = state.shape[state.length_axis]
    require(capacity == total, f"{name} holds {capacity} tokens; text.max_total_tokens is {total}")


def _verify_memory(name: str, state: bundle_pb2.StateTensor, longest: int) -> None:
    require(state.encoder_output, f"{name} is a memory and has no encoder_output")
    capacity = state.shape[state.length_axis]
    require(capacity >= longest, f"{name} holds {capacity} source positions; {longest} are needed")
