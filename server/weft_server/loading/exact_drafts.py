"""How many tokens the rows of a model may draft: as many as the settings say, if that changes no bit of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from weft_proto.first_line import first_line
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.slots import Slots
from weft_server.engine.speculation_check import drafts_are_exact
from weft_server.errors import BundleError
from weft_server.runtime.adapter_stack import AdapterStack
from weft_server.runtime.session import is_out_of_memory

if TYPE_CHECKING:
    from weft_server.bundle.load import Bundle
    from weft_server.runtime.session import Session

_log = structlog.get_logger(__name__)


def exact_drafts(bundle: Bundle, decoder: Session, num_speculative_tokens: int) -> int:
    """Return the most tokens that a run of `decoder` may verify; 0 if it cannot, or not with the bits of single steps.

    It is tried in a slot of its own, on this processor.

    Raises:
        BundleError: such a run fails, though the bundle says that there are such.
    """
    manifest = bundle.manifest
    text, most = manifest.text, min(num_speculative_tokens, manifest.text.max_total_tokens - 1)
    if most < 1 or not decoder.device.in_place or not _verifies(manifest):
        return 0
    stack = AdapterStack(manifest.adapters, 1) if manifest.adapters.layers else None
    slots = Slots(1, text.max_new_tokens, 0, stack)
    runner = DecodeRunner(manifest, None, decoder, slots, max_drafts=most)
    try:
        is_exact = drafts_are_exact(runner, slots, text.source_vocab_size)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise BundleError(f"the DECODER does not verify drafts as its lengths promise: {first_line(error)}") from error
    if is_exact:
        return most
    _log.warning("runs of several tokens have other bits here, nothing is drafted", model=bundle.name)
    return 0


def _verifies(manifest: bundle_pb2.BundleManifest) -> bool:
    """Whether the decoder may be asked what follows each of several tokens: its lengths may be more than its rows.

    A row goes back in its caches where a draft is wrong. No other state can.
    """
    caches = all(state.kind == bundle_pb2.STATE_KIND_KV_CACHE for state in manifest.states)
    if not caches or not TASKS[manifest.task].takes_prompt:
        return False
    decoder = next(graph for graph in manifest.graphs if graph.role == bundle_pb2.GRAPH_ROLE_DECODER)
    sizes = {port.name: port.shape[0] for port in decoder.inputs if port.name in {"input_ids", "lengths"}}
    return sizes["input_ids"] != sizes["lengths"]
