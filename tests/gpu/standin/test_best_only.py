"""Steps that want the best candidates alone have a graph of their own, over the weights of the whole one."""

import numpy as np
import pytest
from driven import Writer
from standin import WHY_NOT, counting, held, verify_clean

from weft_server.runtime.best_only import open_decoder
from weft_server.runtime.device import Device
from weft_server.runtime.halt import Halt
from weft_server.runtime.session import verify_device

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")]
CUDA = Device("cuda", in_place=False)


def stepped(writer, *, reads_all):
    """The candidates of three rows after a fixed token each, behind what they held, and what the step did."""
    slots = writer.slots
    slots.num_running, slots.past_lengths[:3] = 3, (5, 0, 2)
    slots.input_ids[:3, 0], slots.reads_all[:3] = (9, 8, 7), reads_all
    with counting() as counts:
        found = writer.runner.decode(3)
    verify_clean(counts)
    return found.topk_logits, found.topk_ids, found.logsumexp, counts


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_greedy_step_computes_no_more_than_it_needs(bundles, precision):
    """It gives the best candidates that a step with all logits gives, bit for bit, with fewer kernels."""
    writer = Writer(bundles("pydocs", precision), device="cuda")
    best, best_ids, unknown, few = stepped(writer, reads_all=False)
    whole, ids, known, many = stepped(writer, reads_all=True)
    # The best, and one for each end token that may not come.
    num_best = 1 + len(writer.manifest.text.end_ids)
    assert (3, num_best) == best.shape
    assert whole[:, :num_best].tolist() == best.tolist()
    assert ids[:, :num_best].tolist() == best_ids.tolist()
    # The softmax of all logits, and what is picked of it.
    assert few.kernels + 4 < many.kernels
    assert np.isnan(unknown).all()
    assert np.isfinite(known).all()


def test_captured_steps_of_both_kinds_are_a_launch_each(bundles):
    """There are two graphs for each size of a batch, and a step replays the one that it needs."""
    writer = Writer(bundles("pydocs", "fp16"), device="cuda", cuda_graphs=True)
    few, many = (stepped(writer, reads_all=reads_all)[-1] for reads_all in (False, True))
    assert [(1, 0), (1, 0)] == [(each.launches, each.captures) for each in (few, many)]
    assert few.launched_operations < many.launched_operations


def test_both_graphs_have_the_same_weights(bundles):
    """On the device they are once."""
    path = bundles("pydocs", "fp16") / "decoder.onnx"
    verify_device(CUDA)
    before = held()["allocated_bytes"]
    decoder = open_decoder(path, 1, CUDA, Halt(), num_best=2)
    assert decoder.best is not None
    taken = held()["allocated_bytes"] - before
    weights = path.with_name("decoder.onnx.data").stat().st_size
    assert weights <= taken < 1.05 * weights
