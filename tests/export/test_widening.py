"""bf16: its bundles, and the stand-ins that a CPU runs in their place."""

import numpy as np
import onnxruntime as ort
import pytest
import torch
from tiny import CHECKPOINTS, save_tiny

from weft_export.errors import ParityError
from weft_export.export import export_checkpoint
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.options import ExportOptions
from weft_export.verification.parity import check_parity
from weft_export.verification.widening import runnable
from weft_proto.v1 import bundle_pb2

BF16 = bundle_pb2.PRECISION_BF16
DTYPES = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Export a generator at bf16."""
    folder = tmp_path_factory.mktemp("bf16")
    return export_checkpoint(
        save_tiny("tiny-generate", folder / "checkpoint"),
        folder / "tiny-generate" / "1",
        ExportOptions(precision="bf16", no_explain=True),
    )


def test_a_bundle_is_bfloat16_throughout(report):
    """States are bfloat16, answers float32, and no stand-in stays behind."""
    manifest = report.manifest

    assert BF16 == manifest.precision
    assert 1e-3 < manifest.parity.max_abs_error < manifest.parity.tolerance
    assert {bundle_pb2.DATA_TYPE_BFLOAT16} == {state.data_type for state in manifest.states}
    (decoder,) = (graph for graph in manifest.graphs if graph.role == bundle_pb2.GRAPH_ROLE_DECODER)
    types = {port.name: port.data_type for port in (*decoder.inputs, *decoder.outputs)}
    assert bundle_pb2.DATA_TYPE_FLOAT32 == types["logits"] == types["topk_logits"] == types["logsumexp"]
    assert {".jinja", ".json", ".onnx", ".data"} == {path.suffix for path in report.bundle.iterdir()}
    assert not list(report.bundle.glob("*wide*"))


def test_a_graph_itself_is_well_typed(report):
    """ONNX Runtime resolves every type of the graph itself; only then does it find no kernel on a CPU."""
    # Newer versions name their errors in another module; the code is what counts.
    with pytest.raises(Exception, match=r"NOT_IMPLEMENTED.*Could not find an implementation"):
        ort.InferenceSession(report.bundle / "decoder.onnx", providers=["CPUExecutionProvider"])


def test_a_stand_in_rounds(report):
    """What a stand-in returns of bfloat16 has sixteen zero bits at the end, as the products in float32 have not."""
    with runnable(report.bundle / "decoder.onnx") as path:
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {}
    for port in session.get_inputs():
        shape = [1 if isinstance(size, str) else size for size in port.shape]
        feeds[port.name] = np.ones(shape, DTYPES[port.type])
    feeds["total_length"][:] = next(p.shape[2] for p in session.get_inputs() if p.name.startswith("past_key_values"))
    outputs = dict(zip([port.name for port in session.get_outputs()], session.run(None, feeds), strict=True))

    rounded = [outputs["logits"], *(array for name, array in outputs.items() if name.startswith("present"))]
    assert all(bool((array.view(np.uint32) & 0xFFFF == 0).all()) for array in rounded)
    assert len(np.unique(outputs["logits"])) > 10
    assert bool((outputs["logsumexp"].view(np.uint32) & 0xFFFF != 0).any())


def test_a_graph_without_bfloat16_stands_for_itself(tiny_repository):
    """Of other precisions the file itself is run."""
    path = tiny_repository / "tiny-generate" / "1" / "decoder.onnx"
    with runnable(path) as same:
        assert same == path


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("tiny-generate", "layers.0.attention.qkv.weight"),
        ("tiny-image", "encoder.layers.1.feed_forward.up_proj.weight"),
    ],
)
def test_a_wrong_product_is_found(name, weight, tmp_path):
    """A product whose columns stand one place further fails parity at bf16 too."""
    checkpoint = CHECKPOINTS[name]()
    for graph in graphs_of(checkpoint, BF16):
        write_graph(graph, tmp_path)
    with torch.no_grad():
        parameter = checkpoint.model.get_parameter(weight)
        parameter.copy_(parameter.roll(1, 1))

    with pytest.raises(ParityError, match="differs by"):
        check_parity(checkpoint, tmp_path, BF16)
