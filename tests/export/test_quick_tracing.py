"""What tests change of torch.onnx.export, to be quick, makes the graphs that users get."""

import pytest
from tiny import CHECKPOINTS
from torch.onnx._internal.fx.passes import type_promotion

import quick_tracing
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_proto.v1 import bundle_pb2


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-rnn"])
def test_graphs_are_the_same_byte_for_byte(name, monkeypatch, tmp_path):
    """Of a decoder, in which numbers become tensors of other types, and of loops."""
    quick_tracing.trace_quickly()
    interpreter = type_promotion._TypePromotionInterpreter
    assert interpreter.run_node is not quick_tracing.PLAIN
    quick, plain = tmp_path / "quick", tmp_path / "plain"
    for folder, run_node in ((quick, interpreter.run_node), (plain, quick_tracing.PLAIN)):
        folder.mkdir()
        monkeypatch.setattr(interpreter, "run_node", run_node)
        graph = next(each for each in graphs_of(CHECKPOINTS[name](), bundle_pb2.PRECISION_FP32) if not each.made_of)
        write_graph(graph, folder)
    files = sorted(path.name for path in plain.iterdir())
    assert len(files) > 0
    assert [] == [each for each in files if (plain / each).read_bytes() != (quick / each).read_bytes()]
