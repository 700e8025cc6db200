"""A selective state space is the recurrence of its paper, and where an exponential stands does not show in its bits."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from recurrences import check_padding, check_pieces
from tiny_hybrid import tiny_mamba, tiny_selective
from torch.nn import functional

SEQ = 11


@pytest.fixture
def layer():
    """A layer whose numbers forget at rates of their own, from hardly to at once."""
    layer = tiny_selective().model.layers[0].recurrence
    with torch.no_grad():
        layer.rate.copy_(torch.linspace(0.01, 30.0, layer.rate.numel()).view_as(layer.rate))
    return layer


def recurrence(layer, x):
    """The definition, number by number: what the layer gives, and its state at the end."""
    sizes = layer.sizes
    value, gate = layer.input(x).chunk(2, dim=-1)
    value = functional.silu(layer.convolution(value))
    parts = layer.selection(value).split(layer.parts, dim=-1)
    rank, write, read = (
        part / (part.square().mean(dim=-1, keepdim=True) + sizes.inner_norm_eps).sqrt() * norm.weight
        for part, norm in zip(parts, layer.norms, strict=True)
    )
    steps = functional.softplus(layer.steps(rank) + layer.step_bias)
    state, found = torch.zeros(x.shape[0], sizes.d_state, sizes.d_inner), torch.zeros_like(value)
    for place in range(x.shape[1]):
        for channel in range(sizes.d_inner):
            dt, u = steps[:, place, channel, None], value[:, place, channel, None]
            left = (-dt * layer.rate[:, channel]).exp()
            state[:, :, channel] = left * state[:, :, channel] + dt * write[:, place] * u
            found[:, place, channel] = (read[:, place] * state[:, :, channel]).sum(-1) + layer.skip[channel] * u[:, 0]
    return layer.output(found * functional.silu(gate)), state


@pytest.mark.parametrize("size", [1, 4, SEQ])
def test_tokens_are_the_recurrence(layer, size):
    """Read at once, in pieces, and token by token: the same outputs, and the same state at the end."""
    torch.manual_seed(0)
    check_pieces(layer, recurrence, torch.randn(2, SEQ, 32), size)


def test_what_is_padding_changes_no_state(layer):
    """Rows of other lengths share a run, and each state is what it is behind its own last real token."""
    torch.manual_seed(0)
    check_padding(layer, recurrence, torch.randn(3, SEQ, 32), [1, 6, SEQ])


def test_an_exponential_does_not_show_where_it_stands():
    """Of a cut at any place, and of any length up to several vectors of a processor: the bits that it has in the whole.

    And of 0 it is 1: padding leaves the state as it is.
    """
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "exp", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = np.append(-np.abs(np.random.default_rng(0).normal(0, 8, 199)), 0.0).astype(np.float32)
    (whole,) = session.run(None, {"x": x})
    assert 1.0 == whole[-1]
    for first in range(0, 200, 7):
        for size in range(1, 201 - first):
            (cut,) = session.run(None, {"x": x[first : first + size]})
            assert np.array_equal(whole[first : first + size], cut)


@pytest.mark.parametrize("change", [{"state_space": tiny_mamba().model.config.state_space}, {"selective": None}])
def test_layers_of_two_kinds_and_of_none_are_refused(change):
    """A config says what its layers are, once."""
    with pytest.raises(ValueError, match="model must have one of state_space and selective"):
        replace(tiny_selective().model.config, **change)
