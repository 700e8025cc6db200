"""The most probable tokens: found in groups or over everything, they are the same."""

import numpy as np
import onnxruntime
import pytest
import torch

from weft_export.graphs.graphs import Graph, Input
from weft_export.graphs.onnx_graph import write_graph
from weft_export.graphs.views import candidates
from weft_proto.bundle_rules import CANDIDATE_PORTS
from weft_proto.v1 import bundle_pb2

ROWS = 5


def logits_of(vocab, seed=0):
    """Random logits, some of them ruled out."""
    logits = torch.randn(ROWS, vocab, generator=torch.Generator().manual_seed(seed)) * 3
    logits[:, ::7] = -torch.inf
    return logits


@pytest.mark.parametrize("vocab", [20, 1268, 4096, 4097, 32_000, 50_257])
@pytest.mark.parametrize("count", [1, 16, 32])
def test_they_are_the_largest(vocab, count):
    """Whatever the vocabulary's size, the candidates are the largest logits in descending order, with their ids."""
    logits = logits_of(vocab)
    best, ids, logsumexp, same = candidates(logits, count)
    expected = logits.topk(min(count, vocab), dim=-1)

    assert torch.equal(expected.values, best)
    assert torch.equal(expected.indices, ids)
    assert torch.allclose(logits.logsumexp(dim=-1), logsumexp, atol=1e-4)
    assert torch.equal(logits, same)


def test_rows_alone_have_the_bits_of_rows_in_a_batch(tmp_path):
    """ONNX Runtime gives a row the candidates and the normaliser that it gives it among others."""

    class View(torch.nn.Module):
        def forward(self, *halves):
            # The sum is exact. No output of a graph may be an input.
            return candidates(halves[0] + halves[0], 16)

    logits = logits_of(8002)
    halves = logits / 2
    ports = (Input("halves", halves, {0: "batch"}),)
    graph = Graph(bundle_pb2.GRAPH_ROLE_DECODER, "candidates.onnx", View(), ports, CANDIDATE_PORTS)
    write_graph(graph, tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / graph.file_name, providers=["CPUExecutionProvider"])
    together = session.run(None, {"halves": halves.numpy()})
    for row in range(ROWS):
        alone = session.run(None, {"halves": halves[row : row + 1].numpy()})
        for one, all_of_them in zip(alone, together, strict=True):
            assert np.array_equal(one[0], all_of_them[row])
    assert np.array_equal(logits.topk(16).indices.numpy(), together[1])
