"""Makes the lane of a model whose cache lies in blocks. A device has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.v1 import bundle_pb2
from weft_server.config import flag_name
from weft_server.engine.paged_lane import PagedLane
from weft_server.engine.paged_runner import PagedRunner
from weft_server.engine.slots import Slots
from weft_server.errors import BundleError
from weft_server.failpoints import POINTS
from weft_server.runtime.session import is_out_of_memory
from weft_server.serving.extremes import verify_paged
from weft_server.serving.lanes import Lanes
from weft_server.serving.pool_room import pool_size

if TYPE_CHECKING:
    from weft_server.config import ServerConfig
    from weft_server.serving.lanes import Graphs
    from weft_server.telemetry.metrics import ModelMetrics


def paged_lanes(graphs: Graphs, num_lanes: int, config: ServerConfig, metrics: ModelMetrics) -> Lanes:
    """Return the lane, which has to warm itself, in its own thread.

    Raises BundleError when the graph is not what it should be, or memory is short.
    """
    assert num_lanes == 1, f"{num_lanes} lanes for one device. This is a bug."
    manifest = graphs.manifest
    size = pool_size(manifest, config)
    decoder = graphs.open(bundle_pb2.GRAPH_ROLE_DECODER)
    assert decoder is not None, "a bundle without its decoder was accepted. This is a bug."

    def make(_: int) -> PagedLane:
        slots = Slots(config.slots, manifest.text.max_new_tokens)
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
        lane = make(0)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise BundleError(
            f"{flag_name('cache_gb')} {config.cache_gb:g} takes more memory than the device has"
        ) from error
    verify_paged(lane.runner, lane.slots, manifest)
    return Lanes([lane], make)
