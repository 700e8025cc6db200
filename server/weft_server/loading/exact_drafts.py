"""How many tokens the rows of a model may draft: as many as the settings say, if that changes no bit of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from weft_proto.first_line import first_line
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.slots import Slots
from weft_server.engine.speculation_check import drafts_are_exact, drafts_are_exact_beside
from weft_server.errors import BundleError
from weft_server.runtime.adapter_stack import AdapterStack
from weft_server.runtime.session import is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.bundle.load import Bundle
    from weft_server.runtime.session import Session

_log = structlog.get_logger(__name__)
_CACHE, _MEMORY = bundle_pb2.STATE_KIND_KV_CACHE, bundle_pb2.STATE_KIND_MEMORY


def exact_drafts(bundle: Bundle, decoder: Session, num_speculative_tokens: int) -> int:
    """Return the most tokens that a run of `decoder` may verify; 0 if it cannot, or not with the bits of single steps.

    It is tried in a slot of its own, on this processor.

    Raises:
        BundleError: such a run fails, though the bundle says that there are such.
    """
    manifest = bundle.manifest
    text, most = manifest.text, min(num_speculative_tokens, manifest.text.max_total_tokens - 1)
    if has_memory(manifest):
        # What attends to a memory takes no more new tokens than that has places.
        most = min(most, text.max_source_tokens - 1)
    if most < 1 or not decoder.device.in_place or not _verifies(manifest):
        return 0
    if _tried(bundle, decoder, None, most, drafts_are_exact):
        return most
    _log.warning("runs of several tokens have other bits here, nothing is drafted", model=bundle.name)
    return 0


def may_draft_mixed(bundle: Bundle, decoder: Session, mixed: Session, max_drafts: int) -> bool:
    """Whether a run of the MIXED graph may verify as many drafts of a row, with the bits of a run of its own.

    Raises:
        BundleError: as exact_drafts.
    """
    graph = bundle.needed_graph(bundle_pb2.GRAPH_ROLE_MIXED)
    ends = next(port.shape[0] for port in graph.inputs if port.name == "prompt_lengths")
    if not max_drafts or ends.isdecimal():
        return False
    if _tried(bundle, decoder, mixed, max_drafts, drafts_are_exact_beside):
        return True
    _log.warning("mixed runs of several tokens have other bits here, nothing is drafted in them", model=bundle.name)
    return False


def _tried(
    bundle: Bundle,
    decoder: Session,
    mixed: Session | None,
    max_drafts: int,
    trial: Callable[[DecodeRunner, Slots, int], bool],
) -> bool:
    """Do a trial in slots of its own, two if there is a graph for mixed runs."""
    manifest, num_slots = bundle.manifest, 2 if mixed else 1
    stack = AdapterStack(manifest.adapters, num_slots) if manifest.adapters.layers else None
    slots = Slots(num_slots, manifest.text.max_new_tokens, 0, stack)
    runner = DecodeRunner(manifest, None, decoder, slots, mixed, max_drafts=max_drafts)
    try:
        return trial(runner, slots, manifest.text.target_vocab_size)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        role = "MIXED graph" if mixed else "DECODER"
        raise BundleError(f"the {role} does not verify drafts as its lengths promise: {first_line(error)}") from error


def _verifies(manifest: bundle_pb2.BundleManifest) -> bool:
    """Whether the decoder may be asked what follows each of several tokens: its lengths may be more than its rows.

    A row goes back in its caches where a draft is wrong, and a memory stays as it is. No other state can.
    """
    kinds = {state.kind for state in manifest.states}
    task = TASKS[manifest.task]
    if not kinds <= {_CACHE, _MEMORY} or not (task.takes_prompt or task.takes_language):
        return False
    decoder = next(graph for graph in manifest.graphs if graph.role == bundle_pb2.GRAPH_ROLE_DECODER)
    sizes = {port.name: port.shape[0] for port in decoder.inputs if port.name in {"input_ids", "lengths"}}
    return sizes["input_ids"] != sizes["lengths"]


def has_memory(manifest: bundle_pb2.BundleManifest) -> bool:
    """Whether rows attend to what an encoder made of their source."""
    return any(state.kind == _MEMORY for state in manifest.states)
