"""What a proof costs: how often it runs a model, and that it lets go of what it has proved."""

from types import SimpleNamespace

import pytest
import torch
from tiny import tiny_generate
from torch import nn

from weft_export.checkpoints.random_requests import random_requests
from weft_export.graphs.graphs import graphs_of, states_of
from weft_export.verification.decode_parity import DecodeParity
from weft_export.verification.passes import num_passes
from weft_export.verification.tolerance import Tolerance
from weft_proto.v1 import bundle_pb2

FP32 = bundle_pb2.PRECISION_FP32


@pytest.mark.parametrize(
    ("num_weights", "most", "expected"),
    [(0, 256, 256), (10**6, 256, 256), (67 * 10**6, 256, 256), (10**8, 256, 171), (2 * 10**9, 256, 16), (10**9, 8, 8)],
)
def test_a_large_model_is_run_less_often(num_weights, most, expected):
    """As often as asked, or so often that 2^34 weights are read, and 16 times at least. Buffers are weights too."""
    model = nn.Module()
    with torch.device("meta"):
        model.register_buffer("rounded", torch.empty(num_weights // 2))
        model.weight = nn.Parameter(torch.empty(num_weights - num_weights // 2))
    assert expected == num_passes(model, most)


def test_a_proof_that_is_over_holds_no_states():
    """Its arrays and tensors, which may be gigabytes, go before the next proof makes its own. So does the session."""
    checkpoint = tiny_generate()
    (graph,) = (graph for graph in graphs_of(checkpoint, FP32) if graph.role == bundle_pb2.GRAPH_ROLE_DECODER)
    session = SimpleNamespace(get_inputs=list)
    states = states_of(checkpoint.model, FP32)
    run = DecodeParity(Tolerance(1.0), graph, session, states, random_requests(checkpoint))
    assert run.arrays
    assert run.tensors
    run.close()
    assert ([], [], False) == (run.arrays, run.tensors, hasattr(run, "session"))
