"""Laws of runs that are asked what follows each of several tokens."""

import pytest
import torch
from tiny import CHECKPOINTS

from weft_export.graphs.graphs import graphs_of
from weft_export.layers.pooling import last_position, last_positions
from weft_proto.v1 import bundle_pb2

DECODER = bundle_pb2.GRAPH_ROLE_DECODER


def test_lengths_of_the_batch_pick_what_they_do_elsewhere():
    """As many lengths as rows: each picks its row's last real position, whatever the rows' lengths are."""
    x = torch.randn(5, 7, 3)
    lengths = torch.tensor([7, 1, 3, 6, 2], dtype=torch.int32)
    assert torch.equal(last_position(x, lengths), last_positions(x, lengths))


def test_more_lengths_are_of_the_last_row():
    """Of a batch of one they pick any of its positions; of several rows, those of the last one."""
    x = torch.randn(3, 4, 2)
    ends = torch.tensor([1, 2, 4, 3], dtype=torch.int32)
    assert torch.equal(x[2, [0, 1, 3, 2]], last_positions(x[2:], ends))
    assert torch.equal(x[[0, 1, 2, 2], [0, 1, 3, 2]], last_positions(x, ends))


@pytest.mark.parametrize(
    ("name", "precision", "rows"),
    [
        ("tiny-generate", bundle_pb2.PRECISION_INT8, "rows"),
        ("tiny-generate", bundle_pb2.PRECISION_FP32, "batch"),
        ("tiny-t5", bundle_pb2.PRECISION_INT8, "rows"),
        ("tiny-t5", bundle_pb2.PRECISION_FP32, "batch"),
        ("tiny-translate", bundle_pb2.PRECISION_INT8, "batch"),
        ("tiny-caption", bundle_pb2.PRECISION_INT8, "batch"),
    ],
)
def test_int8_decoders_may_be_asked_for_several_positions(name, precision, rows):
    """Others have as many lengths as rows.

    With float32 products such runs have other bits. What reads another vocabulary, or a picture, has nothing to copy.
    """
    graph = next(graph for graph in graphs_of(CHECKPOINTS[name](), precision) if graph.role == DECODER)
    assert {0: rows} == next(port.axes for port in graph.inputs if port.name == "lengths")
