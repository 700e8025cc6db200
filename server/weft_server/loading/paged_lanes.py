"""Makes the lanes of a model whose cache lies in blocks: how many blocks, and one lane for each device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import structlog

from weft_proto.paging import block_tokens
from weft_proto.v1 import bundle_pb2
from weft_server.config import MEBIBYTE, flag_name
from weft_server.engine.paged.block_cache import BlockCache
from weft_server.engine.paged.block_pool import PoolSize
from weft_server.engine.paged.paged_lane import PagedLane
from weft_server.engine.paged.paged_runner import PagedRunner
from weft_server.engine.slots import Slots
from weft_server.errors import BundleError
from weft_server.loading.lanes import Lanes
from weft_server.loading.limit_checks import verify_paged
from weft_server.process.failpoints import POINTS
from weft_server.runtime.session import is_out_of_memory

if TYPE_CHECKING:
    from weft_server.config import ServerConfig
    from weft_server.loading.lanes import Graphs
    from weft_server.telemetry.model_metrics import ModelMetrics

_log = structlog.get_logger(__name__)

_GIGABYTE = 10**9
# Of the types that a paged cache may have. numpy has no bfloat16, so it cannot be asked.
_ITEM_BYTES = {
    bundle_pb2.DATA_TYPE_FLOAT32: 4,
    bundle_pb2.DATA_TYPE_FLOAT16: 2,
    bundle_pb2.DATA_TYPE_BFLOAT16: 2,
    bundle_pb2.DATA_TYPE_INT8: 1,
}


def pool_size(manifest: bundle_pb2.BundleManifest, config: ServerConfig, num_lanes: int) -> PoolSize:
    """Return the size of the pool of each of a model's lanes.

    Raises:
        BundleError: one sequence of the longest length would not fit. It could never be answered.
    """
    tokens = block_tokens(manifest.states)
    each = block_bytes(manifest)
    longest = -(-manifest.text.max_total_tokens // tokens)
    num_blocks = min(int(config.cache_gb * _GIGABYTE) // each, -(-config.slots // num_lanes) * longest)
    if num_blocks < longest:
        # Rounded up, so that what is named is enough.
        wanted = math.ceil(longest * each * 1000 / _GIGABYTE) / 1000
        raise BundleError(
            f"{flag_name('cache_gb')} {config.cache_gb:g} holds {num_blocks * tokens:,} tokens, and a request may have "
            f"{manifest.text.max_total_tokens:,}: give {wanted:g} or more"
        )
    return PoolSize(num_blocks, tokens)


def block_bytes(manifest: bundle_pb2.BundleManifest) -> int:
    """Return what a block takes, in all caches of a paged model together."""
    return sum(math.prod(state.shape) * _ITEM_BYTES[state.data_type] for state in manifest.states)


def num_kept_blocks(manifest: bundle_pb2.BundleManifest, config: ServerConfig) -> int:
    """Return how many blocks each lane of a paged model has more, to keep beginnings of prompts in."""
    return config.prefix_cache_mb * MEBIBYTE // block_bytes(manifest)


def paged_lanes(graphs: Graphs, num_lanes: int, config: ServerConfig, metrics: ModelMetrics) -> Lanes:
    """Return the lanes, each with a pool of its own. Each has to warm itself, in its own thread.

    Raises BundleError when the graph is not what it should be, or memory is short.
    """
    manifest = graphs.manifest
    size = pool_size(manifest, config, num_lanes)
    max_kept = num_kept_blocks(manifest, config)
    if config.prefix_cache_mb and not max_kept:
        wanted = -(-block_bytes(manifest) // MEBIBYTE)
        _log.warning("prefix cache too small, none is used", model=graphs.bundle.name, wanted_mb=wanted)
    metrics.prefix_cache_max_bytes = num_lanes * max_kept * block_bytes(manifest)
    decoders = [graphs.open_decoder(place) for place in graphs.places]

    def make(index: int) -> PagedLane:
        decoder = decoders[index % len(decoders)]
        slots = Slots(config.slots // num_lanes + (index < config.slots % num_lanes), manifest.text.max_new_tokens)
        runner = PagedRunner(manifest, decoder.whole, slots, size.num_blocks, best=decoder.best, max_kept=max_kept)
        lane = PagedLane(
            slots,
            runner,
            end_ids=tuple(manifest.text.end_ids),
            prefill_budget=config.prefill_budget,
            metrics=metrics,
            block_cache=BlockCache(runner, slots, block_bytes(manifest), metrics) if max_kept else None,
        )
        if POINTS:
            POINTS.wire(runner, "run", f"{graphs.bundle.name}.run")
            POINTS.wire(lane, "step", f"{graphs.bundle.name}.step")
        return lane

    try:
        lanes = [make(index) for index in range(num_lanes)]
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        more = f" with {flag_name('prefix_cache_mb')} {config.prefix_cache_mb}" if max_kept else ""
        raise BundleError(
            f"{flag_name('cache_gb')} {config.cache_gb:g}{more} takes more memory than the device has"
        ) from error
    for lane in lanes[: len(decoders)]:
        verify_paged(lane.runner, lane.slots, manifest)
    return Lanes([*lanes], make)
