"""Operators that a device gets in one piece, and a CPU in several."""

from collections import Counter

import onnx
import torch
from tiny import CHECKPOINTS
from torch import nn

from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.layers.feed_forward import GatedFeedForward, MergedFeedForward, merge_feed_forwards
from weft_proto.v1 import bundle_pb2

ROLE = bundle_pb2.GRAPH_ROLE_DECODER


def operators(path):
    """How often each operator stands in a graph."""
    return Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


def test_each_sum_before_a_norm_is_one_operator_on_a_device(tmp_path, tiny_bundle):
    """At fp16 all sums of Llama's layers but the last, which is cut before its norm. Gate and up are one product."""
    checkpoint = CHECKPOINTS["tiny-generate"]()
    (graph,) = (graph for graph in graphs_of(checkpoint, bundle_pb2.PRECISION_FP16) if graph.role == ROLE)
    write_graph(graph, tmp_path)
    exact, half = (operators(folder / graph.file_name) for folder in (tiny_bundle("tiny-generate"), tmp_path))
    layers = len(checkpoint.model.layers)

    assert 0 == exact["SkipSimplifiedLayerNormalization"] == exact["Split"]
    assert 2 * layers - 1 == half["SkipSimplifiedLayerNormalization"]
    assert exact["MatMul"] - layers == half["MatMul"]
    assert layers == half["Split"]


def test_one_product_gives_what_two_give():
    """The halves of the one product are the two, whatever the bias."""
    for bias in (False, True):
        gated = GatedFeedForward(16, 24, activation="silu", bias=bias)
        x = torch.randn(3, 5, 16)
        merge_feed_forwards(holder := nn.Sequential(gated))
        assert isinstance(holder[0], MergedFeedForward)
        torch.testing.assert_close(holder(x), gated(x), atol=1e-6, rtol=1e-6)
