"""Whether several prompts that share a run have the bits of each one's own run, with a graph and on this processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import structlog

from weft_proto.first_line import first_line
from weft_proto.sight import feature_width
from weft_proto.v1 import bundle_pb2
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.prefill_chunks import reads_one_by_one
from weft_server.engine.slots import Slots
from weft_server.runtime.adapter_stack import AdapterStack
from weft_server.runtime.session import is_out_of_memory

if TYPE_CHECKING:
    from weft_server.bundle.load import Bundle
    from weft_server.runtime.session import Session

_log = structlog.get_logger(__name__)
# Of the prompts that are tried together. The shortest is padded by half a bucket and more.
_LENGTHS = (13, 1, 8, 16)


def may_join(bundle: Bundle, decoder: Session) -> bool:
    """Whether a run of `decoder` may read several prompts, each from its beginning to its end.

    Attention operators take several only where nothing is cached and the total length is the run's. It is tried in
    slots of its own: all outputs are compared, and those of a step behind them, which reads the caches.
    """
    manifest = bundle.manifest
    kinds = {state.kind for state in manifest.states}
    if not decoder.device.in_place or kinds != {bundle_pb2.STATE_KIND_KV_CACHE} or reads_one_by_one(manifest):
        return False
    if feature_width(manifest) or manifest.text.max_total_tokens <= max(_LENGTHS):
        return False
    num_slots = len(_LENGTHS)
    stack = AdapterStack(manifest.adapters, num_slots) if manifest.adapters.layers else None
    slots = Slots(num_slots, manifest.text.max_new_tokens, 0, stack)
    slots.reads_all[:] = True
    runner = DecodeRunner(manifest, None, decoder, slots)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, manifest.text.source_vocab_size, length) for length in _LENGTHS]
    try:
        together = _outputs(runner, slots, prompts, joined=True)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        _log.info("each prompt has a run of its own", model=bundle.name, why=first_line(error))
        return False
    is_same = all(map(np.array_equal, together, _outputs(runner, slots, prompts, joined=False)))
    if not is_same:
        _log.info("prompts that share a run have other bits here, each has its own", model=bundle.name)
    return is_same


def _outputs(runner: DecodeRunner, slots: Slots, prompts: list[np.ndarray], *, joined: bool) -> list[np.ndarray]:
    """The logits behind each prompt, and behind one more token of each."""
    slots.past_lengths[:], slots.input_ids[:] = 0, prompts[0][0]
    if joined:
        _, candidates = runner.join(0, prompts)
        logits = [np.array(candidates.logits[row]) for row in range(len(prompts))]
    else:
        logits = [np.array(runner.prefill(slot, prompt)[1].logits[0]) for slot, prompt in enumerate(prompts)]
    candidates = runner.decode(len(prompts))
    return logits + [np.array(candidates.logits[row]) for row in range(len(prompts))]
