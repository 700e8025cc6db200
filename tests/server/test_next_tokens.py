"""What a run computes of each row's next token: the candidates, and all else only for rows that need it."""

import numpy as np
import pytest

from weft_server.bundle.load import load_bundle
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.slots import Slots
from weft_server.runtime.session import Session


def running(directory, *, end_ids=None):
    """Slots and a runner of a decoder, with two rows whose prompts have been read."""
    manifest = load_bundle(directory).manifest
    if end_ids is not None:
        manifest.text.end_ids[:] = end_ids
    slots = Slots(2, 8)
    runner = DecodeRunner(manifest, None, Session(directory / "decoder.onnx", 1), slots)
    for slot in range(2):
        runner.prefill(slot, np.arange(3, 9))
    return slots, runner


def test_a_greedy_row_reads_its_candidates_alone(tiny_repository):
    """Nobody can mistake what was not computed for a figure: the normaliser is NaN, and logits are refused."""
    slots, runner = running(tiny_repository / "tiny-generate" / "1")
    candidates = runner.decode(2)

    assert np.isnan(candidates.logsumexp).all()
    with pytest.raises(AssertionError, match="the logits of row 1 were not asked for"):
        candidates.logits[1]
    best, ids = candidates.topk_logits.copy(), candidates.topk_ids.copy()
    slots.past_lengths -= 1
    slots.reads_all[1] = True
    whole = runner.decode(2)
    assert np.array_equal(best, whole.topk_logits)
    assert np.array_equal(ids, whole.topk_ids)
    assert np.isfinite(whole.logsumexp).all()
    assert np.array_equal(np.take_along_axis(whole.logits, ids, 1), best)


def test_where_all_candidates_may_be_barred_all_logits_are_read(tiny_repository):
    """With as many end tokens as candidates even a greedy row may need a token beyond them."""
    _, runner = running(tiny_repository / "tiny-generate" / "1", end_ids=range(64))
    assert np.isfinite(runner.decode(2).logsumexp).all()
