"""Makes the lanes of a model whose cache lies in blocks. A device has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.v1 import bundle_pb2
from weft_server.config import flag_name
from weft_server.engine.paged_lane import PagedLane
from weft_server.engine.paged_runner import PagedRunner
from weft_server.engine.slots import Slots
from weft_server.errors import BundleError
from weft_server.loading.lanes import Lanes
from weft_server.loading.limit_checks import verify_paged
from weft_server.loading.pool_memory import pool_size
from weft_server.process.failpoints import POINTS
from weft_server.runtime.session import is_out_of_memory

if TYPE_CHECKING:
    from weft_server.config import ServerConfig
    from weft_server.loading.lanes import Graphs
    from weft_server.telemetry.metrics import ModelMetrics


def paged_lanes(graphs: Graphs, num_lanes: int, config: ServerConfig, metrics: ModelMetrics) -> Lanes:
    """Return the lanes, each with a pool of its own. Each has to warm itself, in its own thread.

    Raises BundleError when the graph is not what it should be, or memory is short.
    """
    manifest = graphs.manifest
    size = pool_size(manifest, config, num_lanes)
    decoders = [graphs.open(bundle_pb2.GRAPH_ROLE_DECODER, place) for place in graphs.places]

    def make(index: int) -> PagedLane:
        decoder = decoders[index % len(decoders)]
        assert decoder is not None, "a bundle without its decoder was accepted. This is a bug."
        slots = Slots(config.slots // num_lanes + (index < config.slots % num_lanes), manifest.text.max_new_tokens)
        runner = PagedRunner(manifest, decoder, slots, size.num_blocks)
        lane = PagedLane(
            slots,
            runner,
            end_ids=tuple(manifest.text.end_ids),
            prefill_budget=config.prefill_budget,
            metrics=metrics,
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
        raise BundleError(
            f"{flag_name('cache_gb')} {config.cache_gb:g} takes more memory than the device has"
        ) from error
    for lane in lanes[: len(decoders)]:
        verify_paged(lane.runner, lane.slots, manifest)
    return Lanes([*lanes], make)
