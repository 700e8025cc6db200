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
    expected = logits.sort(dim=-1, descending=True, stable=True)

    assert torch.equal(expected.values[:, :count], best)
    assert torch.equal(expected.indices[:, :count], ids)
    assert torch.allclose(logits.logsumexp(dim=-1), logsumexp, atol=1e-4)
    assert torch.equal(logits, same)


def with_ties(vocab):
    """Logits of few different values, and rows in which a later group has a higher maximum than an earlier one."""
    logits = (torch.randn(ROWS, vocab, generator=torch.Generator().manual_seed(2)) * 2).round()
    logits[0] = 0
    logits[0, [3, 70, 71]] = torch.tensor([7.0, 10.0, 7.0])
    logits[1] = -torch.inf
    logits[1, vocab - 1] = 1
    logits[2] = torch.arange(vocab) // 100 % 5
    return logits


def exported(directory, count):
    """A session of a graph that gives the candidates of twice its input."""

    class View(torch.nn.Module):
        def forward(self, *halves):
            # The sum is exact. No output of a graph may be an input.
            return candidates(halves[0] + halves[0], count)

    ports = (Input("halves", torch.zeros(ROWS, 8002), {0: "batch"}),)
    graph = Graph(bundle_pb2.GRAPH_ROLE_DECODER, "candidates.onnx", View(), ports, CANDIDATE_PORTS)
    write_graph(graph, directory)
    return onnxruntime.InferenceSession(directory / graph.file_name, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("vocab", [100, 4097, 8002])
@pytest.mark.parametrize("count", [1, 2, 16, 32])
def test_of_equal_logits_the_lower_id_comes_first(vocab, count):
    """Also where they stand in different groups, and where more groups share a maximum than are looked at."""
    logits = with_ties(vocab)
    order = logits.sort(dim=1, descending=True, stable=True)

    best, ids, _, _ = candidates(logits, count)

    assert torch.equal(order.values[:, :count], best)
    assert order.indices[:, :count].tolist() == ids.tolist()


@pytest.mark.parametrize("count", [2, 16, 32])
def test_a_graph_orders_equal_logits_as_its_module_does(tmp_path, count):
    """By the lower id, in ONNX Runtime too."""
    logits = with_ties(8002)
    found = exported(tmp_path, count).run(None, {"halves": (logits / 2).numpy()})

    for one, other in zip(candidates(logits, count)[:2], found, strict=False):
        assert np.array_equal(one.numpy(), other)


def test_rows_alone_have_the_bits_of_rows_in_a_batch(tmp_path):
    """ONNX Runtime gives a row the candidates and the normaliser that it gives it among others."""
    logits = logits_of(8002)
    halves = (logits / 2).numpy()
    session = exported(tmp_path, 16)
    together = session.run(None, {"halves": halves})
    for row in range(ROWS):
        alone = session.run(None, {"halves": halves[row : row + 1]})
        for one, all_of_them in zip(alone, together, strict=True):
            assert np.array_equal(one[0], all_of_them[row])
    assert np.array_equal(logits.topk(16).indices.numpy(), together[1])
