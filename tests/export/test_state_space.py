"""A state space in blocks is the recurrence of its paper; where a run ends does not show."""

import pytest
import torch
from recurrences import check_padding, check_pieces
from tiny_hybrid import tiny_state_space
from torch.nn import functional

from weft_export.layers.state_space import BLOCK, softplus

SEQ = 21


def recurrence(layer, x):
    """The definition, token by token: what the layer gives, and its state at the end."""
    sizes = layer.sizes
    heads, d_head, groups = sizes.num_state_heads, sizes.d_state_head, sizes.num_state_groups
    projected = layer.input(x)
    gate, rest, steps = projected.tensor_split([sizes.inner, projected.shape[-1] - heads], dim=-1)
    rest = functional.silu(layer.convolution(rest))
    value, write, read = rest.tensor_split([sizes.inner, sizes.inner + groups * sizes.d_state], dim=-1)
    steps = functional.softplus(steps + layer.step_bias)
    state, found = torch.zeros(x.shape[0], heads, sizes.d_state, d_head), []
    for place in range(x.shape[1]):
        xs = value[:, place].view(-1, heads, d_head)
        b, c = (
            part[:, place].view(-1, groups, sizes.d_state).repeat_interleave(heads // groups, dim=1)
            for part in (write, read)
        )
        dt = steps[:, place, :, None, None]
        state = (-dt * layer.rate[:, None, None]).exp() * state + b[..., None] * dt * xs[:, :, None]
        found.append(((c[:, :, None] @ state)[:, :, 0] + layer.skip[:, None] * xs).flatten(1))
    gated = torch.stack(found, dim=1) * functional.silu(gate)
    grouped = gated.view(*gated.shape[:2], groups, -1)
    normed = grouped / (grouped.square().mean(dim=-1, keepdim=True) + layer.norm.eps).sqrt() * layer.norm.weight
    return layer.output(normed.flatten(-2)), state


@pytest.fixture
def layer():
    """A layer whose heads forget at rates of their own."""
    layer = tiny_state_space().model.layers[0].recurrence
    with torch.no_grad():
        layer.rate.copy_(torch.linspace(0.05, 3.0, len(layer.rate)))
    return layer


@pytest.mark.parametrize("size", [1, 3, BLOCK, SEQ])
def test_blocks_are_the_recurrence(layer, size):
    """Read at once, in whole blocks, and token by token: the same outputs, and the same state at the end."""
    torch.manual_seed(0)
    check_pieces(layer, recurrence, torch.randn(2, SEQ, 48), size)


def test_what_is_padding_changes_no_state(layer):
    """Rows of other lengths share a run, and each state is what it is behind its own last real token."""
    torch.manual_seed(0)
    check_padding(layer, recurrence, torch.randn(3, SEQ, 48), [1, 12, SEQ])


@torch.inference_mode()
def test_a_head_that_forgets_at_once_overflows_nowhere(layer):
    """Steps so long that nothing is left of the state: what is above the diagonal of a block is never computed."""
    layer.step_bias.fill_(200.0)
    layer.rate.fill_(16.0)
    out = layer(torch.randn(1, SEQ, 48))
    assert bool(out.isfinite().all())


def test_a_step_is_exact_where_it_is_small():
    """To seven digits, from steps that are nearly nothing to steps that are as long as their number."""
    x = torch.linspace(-40, 40, 4001)
    torch.testing.assert_close(softplus(x).double(), x.double().exp().log1p(), rtol=4e-7, atol=0)
