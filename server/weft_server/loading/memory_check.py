"""Refuses a model that would not fit into memory, before it takes any: the system would end the whole server."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import structlog

from weft_proto.paging import is_paged
from weft_proto.questions import picture_places
from weft_proto.sight import feature_width, longest_stretch
from weft_proto.tasks import TASKS
from weft_proto.tiling import most_places, most_tiles
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.graphs import weight_bytes
from weft_server.config import flag_name
from weft_server.errors import BundleError
from weft_server.loading.paged_lanes import block_bytes, num_kept_blocks, pool_size
from weft_server.models import picture_features
from weft_server.models.explainer import MAX_SEEING_AGAIN
from weft_server.models.seeing import MAX_SEEING
from weft_server.preprocessing.pictured_prompt import MAX_PICTURES
from weft_server.runtime.cpus import cpu_quota, share_cpus
from weft_server.runtime.huge_pages import page_bytes
from weft_server.runtime.memory import free_memory

if TYPE_CHECKING:
    from weft_server.bundle.load import Bundle
    from weft_server.config import ServerConfig

_log = structlog.get_logger(__name__)
_GIGABYTE = 10**9
_FLOAT_BYTES = 4
# Of the types that a state may have. numpy has no bfloat16, so it cannot be asked.
_ITEM_BYTES = {
    bundle_pb2.DATA_TYPE_FLOAT32: 4,
    bundle_pb2.DATA_TYPE_FLOAT16: 2,
    bundle_pb2.DATA_TYPE_BFLOAT16: 2,
    bundle_pb2.DATA_TYPE_INT8: 1,
}


class MemoryNeed(NamedTuple):
    """Bytes of memory that a model takes: at once, and when each slot is full and has an adapter."""

    at_once: int
    full: int


def memory_need_of(bundle: Bundle, config: ServerConfig) -> MemoryNeed:
    """Return what the weights and slots of a bundle take, its adapters and its pictures, in the host's memory.

    As many adapters as may be there are held once, and once more beside each row that a run may have.
    """
    manifest = bundle.manifest
    weights = sum(file.size_bytes for file in manifest.files)
    states = [_slot_bytes(state) for state in manifest.states]
    num_rows = config.slots if TASKS[manifest.task].writes_text else config.max_batch
    adapters = (config.max_adapters + num_rows) * _adapter_bytes(manifest.adapters)
    at_once, full = (weights + config.slots * sum(each) for each in zip((0, 0), *states, strict=True))
    more = adapters + sight_bytes(manifest, config) + _stretch_bytes(manifest, config)
    return MemoryNeed(at_once, full + more)


def lane_memory_needs(bundle: Bundle, config: ServerConfig, num_lanes: int) -> list[int]:
    """Return the bytes that each of a model's lanes takes of its device. The first one is the largest.

    A device holds the weights once for each graph that runs on it. The first has the one that explains too. Slots take
    all of their memory at once. What a run takes while it runs is not counted.
    """
    manifest, task = bundle.manifest, TASKS[bundle.manifest.task]
    weights = {graph.role: weight_bytes(bundle.path(graph.path)) for graph in manifest.graphs}
    each = sum(weights[role] for role in task.needs) + weights.get(bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER, 0)
    if task.writes_text:
        num_slots = -(-config.slots // num_lanes)
        each += num_slots * _FLOAT_BYTES * manifest.text.target_vocab_size
        if is_paged(manifest.states):
            num_blocks = pool_size(manifest, config, num_lanes).num_blocks + num_kept_blocks(manifest, config)
            each += num_blocks * block_bytes(manifest)
        else:
            each += num_slots * sum(_slot_bytes(state)[1] for state in manifest.states)
    return [each + weights.get(bundle_pb2.GRAPH_ROLE_EXPLAIN, 0), *[each] * (num_lanes - 1)]


def verify_memory(bundle: Bundle, config: ServerConfig) -> None:
    """Raise BundleError if the weights and what slots take at once are more than the memory that is free.

    Where slots fit while they are short, and not when all are full and have adapters, it logs a warning. Models that
    load at the same time do not count each other.
    """
    free = free_memory()
    if free is None:
        return
    at_once, full = memory_need_of(bundle, config)
    if at_once > free:
        raise BundleError(
            f"its weights and {config.slots} slots take {at_once / _GIGABYTE:.1f} GB at once, "
            f"and {free / _GIGABYTE:.1f} GB of memory are free: a smaller {flag_name('slots')} takes less"
        )
    if full > free:
        _log.warning(
            "slots may take more memory than is free",
            model=bundle.name,
            slots=config.slots,
            max_adapters=config.max_adapters if bundle.manifest.adapters.layers else 0,
            full_gb=round(full / _GIGABYTE, 1),
            free_gb=round(free / _GIGABYTE, 1),
        )


def sight_bytes(manifest: bundle_pb2.BundleManifest, config: ServerConfig) -> int:
    """Return the most that pictures of prompts take: those that are kept, on the way, waiting, read and explained.

    Who waits, and whoever's prompt is being read, has features for each token of it at most. What explains has a row
    for each token once more.
    """
    width, longest = feature_width(manifest), manifest.text.max_total_tokens
    if not width:
        return 0
    image, places = manifest.image, picture_places(manifest.image)
    view = image.channels * image.height * image.width + places * width
    most = min(MAX_PICTURES, longest // places) * view
    if image.tiling.grids:
        most = max(most, most_tiles(image) * (view + places * width) + min(longest, most_places(image)) * width)
    elif image.tiling.max_pixels:
        # Each cell is a place of the prompt.
        most = min(MAX_PICTURES * most_places(image), longest) * view
    elif image.tiling.longest_edge:
        # Each tile has its places in the prompt; its features are there alone, and beside those of its picture.
        most = min(MAX_PICTURES * most_tiles(image), longest // places) * (view + places * width)
    on_the_way = MAX_SEEING * most
    waiting = max(config.max_queued_tokens, longest)
    read = share_cpus(config.lanes, config.threads, cpu_quota()).lanes * longest
    explained = (MAX_SEEING_AGAIN + 1) * longest if _explains(manifest) else 0
    return picture_features.MAX_BYTES + _FLOAT_BYTES * (on_the_way + (waiting + read + explained) * width)


def _stretch_bytes(manifest: bundle_pb2.BundleManifest, config: ServerConfig) -> int:
    """Return what the scores of a layer take while each lane reads the longest stretch in both directions."""
    longest = longest_stretch(manifest)
    if not longest:
        return 0
    heads = max([*manifest.attention.heads, *(state.shape[0] for state in manifest.states)])
    lanes = share_cpus(config.lanes, config.threads, cpu_quota()).lanes
    return lanes * heads * longest * manifest.text.max_total_tokens * _FLOAT_BYTES


def _explains(manifest: bundle_pb2.BundleManifest) -> bool:
    return any(graph.role == bundle_pb2.GRAPH_ROLE_EXPLAIN for graph in manifest.graphs)


def _adapter_bytes(spec: bundle_pb2.AdapterSpec) -> int:
    """Return what A and B of one adapter take, of the largest rank."""
    return sum(_FLOAT_BYTES * layer.rank * (layer.inputs + layer.outputs) for layer in spec.layers)


def _slot_bytes(state: bundle_pb2.StateTensor) -> tuple[int, int]:
    """Return what a slot's part of a state takes when each of its stretches is touched once, and when it is full.

    A stretch lies in one piece: a head's keys, for example. The first token of each takes a page.
    """
    size = _ITEM_BYTES[state.data_type]
    copies = 2 if state.kind == bundle_pb2.STATE_KIND_RECURRENT else 1
    full = copies * math.prod(state.shape) * size
    if copies == 2:
        return full, full
    stretch = math.prod(state.shape[state.length_axis :]) * size
    return int(full * min(1.0, page_bytes() / max(1, stretch))), full
