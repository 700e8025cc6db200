"""Makes sure that a MIXED graph gives the bits of its DECODER, before it answers anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.errors import BundleError

if TYPE_CHECKING:
    from weft_server.engine.decode_runner import DecodeRunner
    from weft_server.engine.slots import Slots
    from weft_server.sampling.candidates import Candidates


def verify_mixed(runner: DecodeRunner, slots: Slots, prompt: np.ndarray) -> None:
    """Raise BundleError unless a row and a prompt get the same bits in a mixed run as each in a run of its own.

    The golden request comes alone, so nothing else would ask the MIXED graph before a caller does.
    """
    slots.input_ids[0] = prompt[-1]
    alone = _best(runner.decode(1), 0)
    _, candidates = runner.prefill(1, prompt)
    apart = [alone, _best(candidates, 0)]

    slots.past_lengths[:] = 0
    _, both = runner.mixed(1, prompt, ends=True)
    slots.past_lengths[:] = 0
    slots.input_ids[0] = 0

    for who, row in (("row", 0), ("prompt", 1)):
        if not all(map(np.array_equal, apart[row], _best(both, row))):
            raise BundleError(f"the MIXED graph gives a {who} other bits than DECODER; export without --mixed-runs")


def _best(candidates: Candidates, row: int) -> tuple[np.ndarray, np.ndarray]:
    """A row's candidates, copied: the next run overwrites them."""
    return candidates.topk_ids[row].copy(), candidates.topk_logits[row].copy()
