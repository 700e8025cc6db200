"""Steps that want the best candidates alone have a graph of their own, over the weights of the whole one."""

import numpy as np
import pytest
from driven import Writer
from standin import WHY_NOT, counting, held, verify_clean

from drawn_tails import tail, weights_of
from rows_of_logits import NO_END, candidates_of
from weft_server.runtime.cuda.best_only import open_decoder
from weft_server.runtime.cuda.drawing import MOST_CANDIDATES, TEMPERATURES, TOTAL_WEIGHTS, drawing
from weft_server.runtime.device import Device
from weft_server.runtime.halt import Halt
from weft_server.runtime.session import Session, Value, verify_device
from weft_server.sampling.sampler import sample

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


@pytest.mark.parametrize("cuda_graphs", [False, True], ids=["plain", "captured"])
def test_a_step_that_draws_says_what_all_tokens_weigh(bundles, cuda_graphs):
    """At each row's own temperature, whatever those were before. So its draws are those of all logits on the CPU."""
    writer = Writer(bundles("pydocs", "fp16"), device="cuda", cuda_graphs=cuda_graphs)
    slots, rng = writer.slots, np.random.default_rng(4)
    for temperatures in ([0.7, 0.8, 0.0], [0.01, 1.0, 40.0]):
        slots.sampling.temperature[:3] = temperatures
        slots.sampling.top_p[:3], slots.sampling.typical_p[:3] = 0.9, 1
        slots.sampling.seed[:3] = rng.integers(0, 2**40, 3)
        stepped(writer, reads_all=True)
        found = writer.runner.decode(3)
        logits = np.stack([found.logits[row] for row in range(3)])
        told = np.where(np.array(temperatures) > 0, temperatures, 1)
        np.testing.assert_allclose(found.total_weights, weights_of(logits, told), rtol=1e-5)
        best = np.argsort(-logits, axis=1, kind="stable")[:, :MOST_CANDIDATES]
        assert best.tolist() == found.topk_ids.tolist()
        settings = slots.settings(0, 3)
        with counting() as counts:
            drawn = sample(found, settings, NO_END)[0]
        # Of a flat row a draw may lie beyond the candidates.
        assert 40.0 in temperatures or 0 == counts.to_host
        assert sample(candidates_of(logits, 8), settings, NO_END)[0].tolist() == drawn.tolist()


@pytest.mark.parametrize("captures", [False, True], ids=["plain", "captured"])
@pytest.mark.parametrize("vocab", [32_000, 128_256, 151_669])
def test_the_tail_of_a_step_that_draws(vocab, captures):
    """Of a real vocabulary, also in groups, and where the last is not full: the CPU's candidates and weights."""
    rows = 3
    graph = drawing(tail(vocab))
    read = np.round(np.random.default_rng(5).normal(0, 2, (rows, vocab)) * 64).astype(np.float32) / 64
    temperatures = np.array([0.5, 1.0, 2.0], np.float32)
    expected = Session(graph.SerializeToString(), 1).run({"product": read, TEMPERATURES: temperatures})
    verify_device(CUDA)
    session = Session(graph.SerializeToString(), 1, CUDA, captures=captures)
    given = {"product": Value.like(read, CUDA), TEMPERATURES: Value.like(temperatures, CUDA)}
    written = {name: Value.like(array, CUDA) for name, array in expected.items()}
    bound = session.bind(*({name: value.block for name, value in values.items()} for values in (given, written)))
    given["product"].send(read)
    given[TEMPERATURES].send(temperatures)
    with counting() as counts:
        bound.capture()
        bound.run()
    verify_clean(counts)
    for name in ("topk_ids", "topk_logits"):
        assert expected[name].tolist() == written[name].fetch().tolist()
    np.testing.assert_allclose(written[TOTAL_WEIGHTS].fetch(), weights_of(read, temperatures), rtol=1e-5)


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
