"""RWKV 7's layer is the recurrence of its paper, token by token, however a text is cut and padded."""

import pytest
import torch
from recurrences import check_padding, check_pieces
from tiny_hybrid import tiny_rwkv
from torch.nn import functional

SEQ = 11


class Whole:
    """A layer behind the first, whose values are given for all places, as the checks of recurrences call one."""

    def __init__(self, layer, first):
        self.layer, self.first, self.done = layer, first, 0
        self.state_shapes = layer.state_shapes

    def step(self, x, past, lengths):
        """Map the next positions, whose values of the first layer come next too."""
        first = self.first[:, self.done : self.done + x.shape[1]]
        self.done += x.shape[1]
        out, present, _ = self.layer.step(x, past, lengths, first)
        return out, present


@pytest.fixture
def layer():
    """The second layer, with decays from hardly to most, and shares of all sizes."""
    torch.manual_seed(0)
    mixed = tiny_rwkv().model.layers[1].time_mix
    width = mixed.sizes.inner
    with torch.no_grad():
        mixed.mixing.copy_(torch.rand(6, width))
        mixed.decay.up_proj.bias.copy_(torch.linspace(-8.0, 6.0, width))
        for vector in (mixed.forgotten, mixed.rate_share, mixed.norm_weight):
            vector.copy_(1 + torch.randn(width) / 3)
        # A head whose keys are 0 asks for nothing.
        mixed.forgotten[: mixed.sizes.d_state_head] = 0
    return Whole(mixed, torch.randn(1, SEQ, width))


def recurrence(whole, x):
    """The definition, head by head and token by token: what the layer gives, and its state at the end."""
    layer = whole.layer
    heads, size = layer.sizes.num_state_heads, layer.sizes.d_state_head
    before = functional.pad(x, (0, 0, 1, 0))[:, :-1]
    r, w, k, v, a, g = (x * (1 - share) + before * share for share in layer.mixing)

    def low_rank(part, x, f=lambda x: x):
        return part.up_proj(f(part.down_proj(x)))

    share = low_rank(layer.value_share, v).sigmoid()
    r, k, v = layer.receptance(r), layer.key(k), layer.value(v)
    v = v + (whole.first[:, : x.shape[1]] - v) * share
    w = torch.exp(-0.606531 * low_rank(layer.decay, w, torch.tanh).sigmoid())
    a, g = low_rank(layer.rate, a).sigmoid(), low_rank(layer.gate, g, torch.sigmoid)
    written = k * (1 - layer.rate_share) + k * a * layer.rate_share
    state, out = torch.zeros(x.shape[0], heads, size, size), torch.zeros_like(x)
    for row in range(x.shape[0]):
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            for place in range(x.shape[1]):
                e = functional.normalize((k * layer.forgotten)[row, place, part], dim=0)
                memory = state[row, head]
                kept = memory * w[row, place, part, None] - torch.outer(e * a[row, place, part], e @ memory)
                state[row, head] = kept + torch.outer(written[row, place, part], v[row, place, part])
                read = r[row, place, part] @ state[row, head]
                read = (read - read.mean()) / (read.var(correction=0) + 64e-5).sqrt()
                read = read * layer.norm_weight[part] + layer.norm_bias[part]
                itself = (r[row, place, part] * written[row, place, part] * layer.bonus[head]).sum()
                out[row, place, part] = read + itself * v[row, place, part]
    return layer.output(out * g), state


@pytest.mark.parametrize("size", [1, 4, SEQ])
def test_tokens_are_the_recurrence(layer, size):
    """Read at once, in pieces, and token by token: the same outputs, and the same state at the end."""
    check_pieces(layer, recurrence, torch.randn(2, SEQ, 36), size)


def test_what_is_padding_changes_no_state(layer):
    """Rows of other lengths share a run, and each state is what it is behind its own last real token."""
    check_padding(layer, recurrence, torch.randn(3, SEQ, 36), [1, 6, SEQ])


def test_heads_that_are_not_as_wide_as_the_model_are_refused():
    """By the two numbers."""
    config = tiny_rwkv().model.config
    with pytest.raises(ValueError, match=r"model.d_model \(48\) must be time_mix.num_state_heads .* \(36\)"):
        type(config)(**{**vars(config), "d_model": 48})
