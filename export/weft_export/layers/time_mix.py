"""RWKV 7's layer in the place of attention: in each head a memory of values by keys, which tokens correct.

"RWKV-7 'Goose' with Expressive Dynamic State Evolution" (Peng et al. 2025). Of each head, with a state S [key, value]
and a token's receptance r, decay w, key k, value v, and the key e of length 1 that is forgotten at a rate a:

    S_t = diag(w_t) S_{t-1} - (a_t e_t) (e_t^T S_{t-1}) + k_t v_t^T        y_t = r_t^T S_t

What the memory has under e is taken out by the share a, and then k and v are put in: the rule of deltas. Each product
takes a vector and the state, or two vectors, so a block of tokens has no shorter way: they go through it one by one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.token_shift import SHIFTED, shifted

OPERATOR = "weft::Correct"
"""Stands in a traced graph for tokens_through. graphs/recurring.py puts a Scan of ONNX in its place."""
_SLOWEST = -0.606531
"""A number of the state decays to e^this at least: exp(-0.5) with the digits that the authors' code has."""
_SHORTEST = 1e-12
"""A key shorter than this is divided by it and not by its length."""
_MIXED = 6


@dataclass(frozen=True)
class TimeMixSizes:
    """Of one layer. The heads together are as wide as the model.

    decay_rank, rate_rank, value_rank, gate_rank: how wide the middle is of what says w and a, how much of the first
        layer's value is taken, and the gate.
    inner_norm_eps: of the norm of each head's output.
    """

    num_state_heads: int
    d_state_head: int
    decay_rank: int
    rate_rank: int
    value_rank: int
    gate_rank: int
    inner_norm_eps: float = 64e-5

    @property
    def inner(self) -> int:
        """How wide the heads are together."""
        return self.num_state_heads * self.d_state_head


class LowRank(nn.Module):
    """f(x W_1) W_2 + b, whose middle is narrow."""

    def __init__(
        self, width: int, rank: int, activation: Callable[[Tensor], Tensor] | None = None, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.activation = activation
        self.down_proj = nn.Linear(width, rank, bias=False)
        self.up_proj = nn.Linear(rank, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, seq, width] to the same shape."""
        middle = self.down_proj(x)
        out: Tensor = self.up_proj(middle if self.activation is None else self.activation(middle))
        return out


class TimeMix(nn.Module):
    """y = W_o ((norm(y_t) + bonus) * gate), where the bonus is what a token reads of itself.

    mixing: six vectors, which say how much of the position before stands in what each of r, w, k, v, a and the gate is
    made of. is_first: whether it is the first layer, whose values all others take a share of.
    """

    def __init__(self, sizes: TimeMixSizes, *, is_first: bool) -> None:
        super().__init__()
        self.sizes = sizes
        width = sizes.inner
        heads = (sizes.num_state_heads, sizes.d_state_head)
        self.mixing = nn.Parameter(torch.zeros(_MIXED, width))
        self.receptance = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.decay = LowRank(width, sizes.decay_rank, torch.tanh)
        self.rate = LowRank(width, sizes.rate_rank)
        self.value_share = None if is_first else LowRank(width, sizes.value_rank)
        self.gate = LowRank(width, sizes.gate_rank, torch.sigmoid, bias=False)
        self.forgotten = nn.Parameter(torch.ones(width))
        self.rate_share = nn.Parameter(torch.ones(width))
        self.bonus = nn.Parameter(torch.zeros(heads))
        self.norm_weight = nn.Parameter(torch.ones(width))
        self.norm_bias = nn.Parameter(torch.zeros(width))
        self.state_shapes = {"before": (SHIFTED, width), "state": (*heads, sizes.d_state_head)}

    def step(
        self, x: Tensor, past: tuple[Tensor, ...], lengths: Tensor, first: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """Map the next positions x [batch, seq, width], of which lengths int32 [batch] are real.

        past: the position before them, and the state [batch, heads, key, value]. first: the first layer's values
        [batch, seq, width]; None in that layer. Returns the states after the last real position, and the values.
        """
        before, seen = shifted(x, past[0], lengths)
        change = before - x
        mixed = [x + change * share for share in self.mixing.unbind()]
        read, key, value = self.receptance(mixed[0]), self.key(mixed[2]), self.value(mixed[3])
        if self.value_share is not None:
            assert first is not None, "a layer behind the first has none of its values. This is a bug."
            value = value + (first - value) * self.value_share(mixed[3]).sigmoid()
        rate, gate = self.rate(mixed[4]).sigmoid(), self.gate(mixed[5])
        # A token that is padding leaves all as it is, and writes nothing.
        real = (torch.arange(x.shape[1]) < lengths[:, None])[:, :, None].to(x.dtype)
        left = (_SLOWEST * self.decay(mixed[1]).sigmoid() * real).exp()

        forgotten = self._heads(key * self.forgotten)
        forgotten = forgotten / _dot(forgotten, forgotten).sqrt().clamp_min(_SHORTEST)
        key = key * (1 + (rate - 1) * self.rate_share)
        writes = torch.stack((forgotten * self._heads(rate * real), self._heads(key * real)), dim=-1)
        reads, values = self._heads(read), self._heads(value)
        out, state = tokens_through(
            past[1],
            self._heads(left)[..., None],
            -forgotten[..., None, :],
            writes,
            values[..., None, :],
            reads[..., None, :],
        )
        normed = functional.layer_norm(out[..., 0, :], out.shape[-1:], eps=self.sizes.inner_norm_eps).flatten(2)
        itself = _dot(reads * self.bonus, self._heads(key)) * values
        summed = normed * self.norm_weight + self.norm_bias + itself.flatten(2)
        return self.output(summed * gate), (seen, state), value

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.sizes.num_state_heads, self.sizes.d_state_head)


def _dot(x: Tensor, y: Tensor) -> Tensor:
    """Return x^T y of each head, [..., 1]: a product of matrices, because a sum rounds one row unlike several."""
    return (x[..., None, :] @ y[..., None])[..., 0]


def tokens_through(
    state: Tensor, left: Tensor, asked: Tensor, writes: Tensor, values: Tensor, reads: Tensor
) -> tuple[Tensor, Tensor]:
    """Let tokens, one after the other, multiply the state by what they leave of it, correct it, and read it.

    state: [batch, heads, key, value].
    left: [batch, seq, heads, key, 1].
    asked: under which key they look what is there, [batch, seq, heads, 1, key].
    writes: under which keys they write that, and their values, [batch, seq, heads, key, 2].
    values: [batch, seq, heads, 1, value].
    reads: [batch, seq, heads, 1, key].

    Returns what each token reads, as values, and the last state.
    """
    if torch.onnx.is_in_onnx_export():
        out, last = torch.onnx.ops.symbolic_multi_out(
            OPERATOR,
            (state, left, asked, writes, values, reads),
            {},
            dtypes=(state.dtype, state.dtype),
            shapes=(values.shape, state.shape),
            version=1,
        )
        return out, last
    read = []
    for token in range(values.shape[1]):
        written = torch.cat((asked[:, token] @ state, values[:, token]), dim=-2)
        state = state * left[:, token] + writes[:, token] @ written
        read.append(reads[:, token] @ state)
    return torch.stack(read, dim=1), state
