"""What only some runs ask for: it changes nothing else, and who does not ask does not wait for it."""

import numpy as np
import onnx
import onnxruntime
import pytest
from tiny import CHECKPOINTS

from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_proto.bundle_rules import READS_ALL
from weft_proto.v1 import bundle_pb2

ROWS = 3
RNG = np.random.default_rng(4)
DTYPES = {"tensor(float)": np.float32, "tensor(int8)": np.int8, "tensor(int32)": np.int32, "tensor(int64)": np.int64}
CASES = ["tiny-generate", "tiny-gpt", "tiny-translate", "tiny-generate-int8", "tiny-translate-int8"]


@pytest.fixture(params=CASES)
def path(request, tiny_bundle):
    """Each precision's decoder of a model with 64 candidates and of one with 16."""
    return tiny_bundle(request.param) / "decoder.onnx"


def feeds_for(session):
    """Rows at the start of their answers, with random states."""
    feeds = {}
    for port in session.get_inputs():
        shape = [{"batch": ROWS, "rows": ROWS, "seq": 1}.get(size, size) for size in port.shape]
        feeds[port.name] = np.ones(shape, DTYPES[port.type])
        if port.name.startswith(("past_key_values", "memory.")):
            feeds[port.name] = (RNG.standard_normal(shape) * 3).astype(DTYPES[port.type])
    capacity = next(array.shape[2] for name, array in feeds.items() if name.startswith("past_key_values"))
    feeds["total_length"][:] = capacity
    return feeds


def test_who_asks_for_less_gets_the_same_bits_of_it(path):
    """Candidates and states are the same bits either way; only the normaliser, and logits, may be missing."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds, names = feeds_for(session), [port.name for port in session.get_outputs()]
    everything = dict(zip(names, session.run(None, feeds), strict=True))
    less = dict(zip(names, session.run(None, {**feeds, READS_ALL: np.zeros(1, np.int32)}), strict=True))

    assert (0,) == less["logsumexp"].shape
    for name in set(names) - {"logsumexp", "logits"}:
        assert np.array_equal(everything[name], less[name]), name
    logits = everything["logits"]
    assert np.array_equal(np.take_along_axis(logits, everything["topk_ids"], 1), everything["topk_logits"])
    assert np.allclose(np.log(np.exp(logits.astype(np.float64)).sum(1)), everything["logsumexp"], atol=1e-4)
    best = np.sort(logits, axis=1)[:, ::-1][:, : everything["topk_logits"].shape[1]]
    assert np.array_equal(best, everything["topk_logits"])


def test_no_pass_over_the_vocabulary_waits_outside(path):
    """LogSoftmax is computed only where it is asked for; so are int8's logits at their scale."""
    graph = onnx.load(path, load_external_data=False).graph
    (branch,) = (node for node in graph.node if node.op_type == "If")
    (then,) = (attribute.g for attribute in branch.attribute if attribute.name == "then_branch")

    assert "LogSoftmax" in {node.op_type for node in then.node}
    assert "LogSoftmax" not in {node.op_type for node in graph.node}
    assert (["logsumexp", "logits"] if "-int8" in str(path) else ["logsumexp"]) == list(branch.output)


@pytest.mark.parametrize(
    ("name", "precision"),
    [("tiny-rnn-vanilla", bundle_pb2.PRECISION_FP32), ("tiny-generate", bundle_pb2.PRECISION_FP16)],
)
def test_others_compute_all(name, precision, tmp_path):
    """A recurrent model, and what is for a device, have no condition."""
    (graph,) = (g for g in graphs_of(CHECKPOINTS[name](), precision) if g.role == bundle_pb2.GRAPH_ROLE_DECODER)
    write_graph(graph, tmp_path)
    model = onnx.load(tmp_path / graph.file_name, load_external_data=False)

    assert READS_ALL not in {port.name for port in model.graph.input}
    assert "If" not in {node.op_type for node in model.graph.node}
