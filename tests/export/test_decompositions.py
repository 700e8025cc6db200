"""What torch.onnx.export would trace a second time is decomposed where it stands, and says the same."""

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from weft_export.graphs import decompositions
from weft_export.graphs.graphs import Graph, Input
from weft_export.graphs.onnx_graph import write_graph
from weft_proto.v1 import bundle_pb2


class Of(nn.Module):
    """A module of one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        """Apply the function."""
        return self.function(*inputs)


def run(function, tmp_path, *sizes):
    """Write the graph of a function of [rows, columns, 2, 3], and hold it to torch at each pair of sizes."""
    port = Input("x", torch.randn(3, 5, 2, 3), {0: "rows", 1: "columns"})
    role = bundle_pb2.GRAPH_ROLE_CLASSIFIER
    write_graph(Graph(role, "graph.onnx", Of(function), (port,), ("y",)), tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / "graph.onnx", providers=["CPUExecutionProvider"])
    for rows, columns in sizes:
        given = torch.randn(rows, columns, 2, 3)
        wanted = function(given).numpy()
        (told,) = session.run(None, {"x": given.numpy()})
        assert told.dtype == wanted.dtype
        assert told.shape == wanted.shape
        np.testing.assert_allclose(told, wanted, rtol=1e-6)


def chosen(rows):
    """Places of a first axis that values choose, and what stands there."""
    places = (rows.flatten(1).sum(dim=1) > 0).nonzero().squeeze(-1)
    return places, rows.index_select(0, places)


KNOWN = {
    "a cast to its own type": lambda x: (x + 1).float(),
    "a cast": lambda x: (x * 9).to(torch.int64),
    "a constant": lambda x: x + torch.tensor([1.0, 2.0, 3.0]),
    "both": lambda x: (x > 0) & (x < 1),
    "either": lambda x: (x < 0) | (x > 1),
    "certain axes that become one": lambda x: x.flatten(2),
    "uncertain axes that become one": lambda x: x.flatten(0, 1),
    "an uncertain axis that becomes one with a certain one": lambda x: x.flatten(1, 2),
    "all axes that become one": lambda x: x.flatten(),
    "an axis from behind": lambda x: x.flatten(-2),
    "axes that do not lie so": lambda x: x.transpose(0, 2).flatten(1, 2),
    "certain axes that do not lie so": lambda x: x.transpose(2, 3).flatten(2),
    "an axis that becomes two": lambda x: x.flatten(2).unflatten(-1, (3, 2)),
    "an uncertain axis that becomes two": lambda x: x.flatten(0, 1).unflatten(0, x.shape[:2]),
    "another shape": lambda x: x.transpose(1, 3).reshape(x.shape[0], 2, 3 * x.shape[1]),
    "parts": lambda x: torch.cat(x.flatten(2).chunk(3, dim=-1)[::-1], dim=2),
    "parts of which the last is smaller": lambda x: torch.cat(x.flatten(2).chunk(4, dim=-1)[::-1], dim=2),
    "what is added at some places": lambda x: x.index_add(-2, torch.tensor([1, 0, 1]), torch.cat((x, x[:, :, :1]), 2)),
    "what is added at uncertain places": lambda x: x.flatten(0, 1).index_add(0, *chosen(x.flatten(0, 1))),
    "what is added several times": lambda x: x.index_add(3, torch.tensor([2, 0]), x[..., :2], alpha=-2),
    "a square": lambda x: x.square(),
    "parts of the first axis": lambda x: x.permute(3, 0, 1, 2).chunk(2)[1] + 1,
}


@pytest.mark.parametrize("function", KNOWN.values(), ids=KNOWN)
def test_what_is_known_is_not_traced_again(monkeypatch, caplog, tmp_path, function):
    """Each rewrite has torch's values, at one row, at others than were traced, and at none. torch warns of none."""

    def traced_again(*_):
        raise AssertionError("it was traced again")

    monkeypatch.setattr(ExportedProgram, "run_decompositions", traced_again)
    run(function, tmp_path, (3, 5), (1, 1), (4, 7), (0, 2))
    assert [] == [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


def loop(x):
    """Keep what is read at each of the rows, and what was before."""
    return torch._higher_order_ops.scan(lambda kept, row: (kept + row, kept * row), x[0], x)[1]


UNKNOWN = {
    "an operator that is made of others": lambda x: torch.rsub(x, 1),
    "an operator that the table has": lambda x: x + torch.eye(3)[:2],
    "a loop": loop,
}


@pytest.mark.parametrize("function", UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_unknown_is_traced_again(monkeypatch, tmp_path, function):
    """A program that has an operator of which nothing is known here is torch's own matter."""
    again, traced_again = [], ExportedProgram.run_decompositions

    def noted(program, *arguments):
        again.append(program)
        return traced_again(program, *arguments)

    monkeypatch.setattr(ExportedProgram, "run_decompositions", noted)
    run(function, tmp_path, (3, 5), (4, 7))
    assert again


def test_a_twin_that_a_release_lacks_is_traced_again(monkeypatch, tmp_path):
    """An operator that is kept, and that torch.onnx.export cannot convert, is decomposed by torch."""
    monkeypatch.setattr(decompositions, "_KNOWN", decompositions._KNOWN | {torch.ops.aten.rsub.Scalar})
    run(UNKNOWN["an operator that is made of others"], tmp_path, (3, 5), (4, 7))


def test_outside_torch_is_as_it_was():
    """An export leaves nothing changed behind."""
    before = ExportedProgram.run_decompositions
    with decompositions.where_they_stand():
        assert ExportedProgram.run_decompositions is not before
    assert ExportedProgram.run_decompositions is before
