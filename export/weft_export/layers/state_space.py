"""Mamba 2's layer: a state of constant size that forgets at a rate of its own in each head, read and written by tokens.

"Transformers are SSMs" (Dao and Gu 2024). Of each head, with a state h [d_state, d_head] and a token's x, b, c and dt:

    h_t = exp(-dt_t rate) h_{t-1} + b_t (dt_t x_t)^T        y_t = c_t h_t + skip x_t

In blocks of tokens that is attention without a softmax (their section 6): what a token reads of its own block is a
product of c, b and x under a mask, and what it reads of all before is c h. So the state is read and written once for
BLOCK tokens. Blocks begin where a run begins. A prompt that is always cut at multiples of BLOCK has the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.causal_convolution import CausalConvolution
from weft_export.layers.style import RmsNorm

BLOCK = 8
_LAST_TERM = 13
"""Of the series of artanh, up to a third: what is left is below the last digit of float32."""
OPERATOR = "weft::Recur"
"""Stands in a traced graph for blocks_through. graphs/recurring.py puts a Scan of ONNX in its place."""


@dataclass(frozen=True)
class StateSpaceSizes:
    """Of one layer. Heads of a group share b and c.

    taps: how many positions the convolution before it sees.
    convolution_bias, bias: whether that has one, and whether the first and the last product have.
    """

    num_state_heads: int
    d_state_head: int
    d_state: int
    num_state_groups: int = 1
    taps: int = 4
    convolution_bias: bool = True
    bias: bool = False

    @property
    def inner(self) -> int:
        """How wide x is."""
        return self.num_state_heads * self.d_state_head


class StateSpace(nn.Module):
    """y = W_o norm(scan(x, b, c, dt) * silu(z)), where z, x, b, c and dt are W_i of the input.

    x, b and c pass a short convolution and a SiLU before.
    """

    def __init__(self, d_model: int, sizes: StateSpaceSizes, norm_eps: float) -> None:
        super().__init__()
        self.sizes = sizes
        heads, groups, inner = sizes.num_state_heads, sizes.num_state_groups, sizes.inner
        self.parts = [inner, groups * sizes.d_state, groups * sizes.d_state]
        convolved = sum(self.parts)
        self.input = nn.Linear(d_model, inner + convolved + heads, bias=sizes.bias)
        self.convolution = CausalConvolution(convolved, sizes.taps, bias=sizes.convolution_bias)
        self.step_bias = nn.Parameter(torch.zeros(heads))
        self.rate = nn.Parameter(torch.ones(heads))
        self.skip = nn.Parameter(torch.ones(heads))
        self.norm = RmsNorm(inner // groups, norm_eps)
        self.norm.weight = nn.Parameter(torch.ones(groups, inner // groups))
        self.output = nn.Linear(inner, d_model, bias=sizes.bias)
        self.state_shapes = {
            "inputs": (sizes.taps - 1, convolved),
            "state": (heads, sizes.d_state, sizes.d_state_head),
        }

    def forward(self, x: Tensor) -> Tensor:
        """Map the whole of x [batch, seq, d_model] to the same shape."""
        past = tuple(torch.zeros(x.shape[0], *shape, dtype=x.dtype) for shape in self.state_shapes.values())
        lengths = torch.full((x.shape[0],), x.shape[1], dtype=torch.int32)
        return self.step(x, past, lengths)[0]

    def step(self, x: Tensor, past: tuple[Tensor, ...], lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Map the next positions x [batch, seq, d_model], of which lengths int32 [batch] are real.

        past: what the convolution looks at, and the state [batch, heads, d_state, d_head]. Returns those after the last
        real position too.
        """
        heads, groups, inner = self.sizes.num_state_heads, self.sizes.num_state_groups, self.sizes.inner
        gate, convolved, steps = torch.split(self.input(x), [inner, sum(self.parts), heads], dim=-1)
        convolved, seen = self.convolution.step(convolved, past[0], lengths)
        value, write, read = torch.split(functional.silu(convolved), self.parts, dim=-1)
        # A step of length 0 forgets nothing and writes nothing.
        real = torch.arange(x.shape[1]) < lengths[:, None]
        steps = softplus(steps + self.step_bias) * real[:, :, None].to(x.dtype)

        kept = _exp(-steps * self.rate)
        heads_of = value.view(*x.shape[:2], heads, -1)
        written = (heads_of * steps[..., None]).flatten(2)

        def in_blocks(part: Tensor, num_parts: int, filled: float = 0.0) -> Tensor:
            """Return [batch, seq, ...] as [batch, blocks, groups, parts of a group, BLOCK, ...]."""
            part = functional.pad(part, (0, 0, 0, -x.shape[1] % BLOCK), value=filled)
            part = part.view(x.shape[0], -1, BLOCK, groups, num_parts, part.shape[-1] // (groups * num_parts))
            return part.permute(0, 1, 3, 4, 2, 5)

        of_group = heads // groups
        shape = (x.shape[0], groups, of_group, self.sizes.d_state, self.sizes.d_state_head)
        out, state = _through(
            in_blocks(written, of_group),
            in_blocks(kept, of_group, 1.0),
            in_blocks(write, 1),
            in_blocks(read, 1),
            past[1].view(shape),
        )
        out = out.permute(0, 1, 4, 2, 3, 5).reshape(x.shape[0], -1, inner)[:, : x.shape[1]]
        out = out + (heads_of * self.skip[:, None]).flatten(2)
        gated = out * functional.silu(gate)
        normed = self.norm(gated.view(*gated.shape[:2], groups, -1)).flatten(-2)
        return self.output(normed), (seen, state.flatten(1, 2))


def _through(written: Tensor, kept: Tensor, writes: Tensor, reads: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Let all blocks read the state before them and what is before in themselves, and write.

    written: [batch, blocks, groups, heads of a group, BLOCK, d_head].
    kept: what each step leaves of the state, the same but for [..., BLOCK, 1].
    writes, reads: [batch, blocks, groups, 1, BLOCK, d_state].
    state: [batch, groups, heads of a group, d_state, d_head].

    Returns what is read, as values, and the state after the last block.
    """
    # What is left at each token of what each one before it wrote: all that is kept between. It is multiplied up token
    # by token: quotients of products from the first token on would lose digits, and divide by 0.
    index = torch.arange(BLOCK)
    itself = (index[:, None] == index).to(kept.dtype)
    rows = [itself[:1].expand(*kept.shape[:-2], 1, BLOCK)]
    for token in range(1, BLOCK):
        rows.append(rows[-1] * kept[..., token : token + 1, :] + itself[token : token + 1])
    left = torch.cat(rows, dim=-2)
    own = (reads @ writes.transpose(-2, -1) * left) @ written
    of_state = left[..., :1] * kept[..., :1, :]
    at_end = left[..., -1:, :].transpose(-2, -1)
    read, state = blocks_through(state, of_state[..., -1:, :], writes.transpose(-2, -1), written * at_end, reads)
    return own + read * of_state, state


def blocks_through(state: Tensor, left: Tensor, writes: Tensor, values: Tensor, reads: Tensor) -> tuple[Tensor, Tensor]:
    """Let blocks, one after the other, read the state, multiply it by what is left, and add what they write.

    state: [batch, groups, heads, d_state, d_head].
    left: [batch, blocks, groups, heads, 1, 1].
    writes: [batch, blocks, groups, 1, d_state, BLOCK].
    values: [batch, blocks, groups, heads, BLOCK, d_head].
    reads: [batch, blocks, groups, 1, BLOCK, d_state].

    Returns what each block reads, as values, and the last state.
    """
    if torch.onnx.is_in_onnx_export():
        out, last = torch.onnx.ops.symbolic_multi_out(
            OPERATOR,
            (state, left, writes, values, reads),
            {},
            dtypes=(state.dtype, state.dtype),
            shapes=(values.shape, state.shape),
            version=1,
        )
        return out, last
    read = []
    for block in range(values.shape[1]):
        read.append(reads[:, block] @ state)
        state = state * left[:, block] + writes[:, block] @ values[:, block]
    return torch.stack(read, dim=1), state


def _exp(x: Tensor) -> Tensor:
    """Return e^x of x <= 0, as p / (1 - p) of a softmax beside 0.

    ONNX Runtime computes a softmax row by row, on every processor. Its Softplus and Log round by the place in a batch.
    """
    beside = functional.pad(x[..., None], (0, 1)).softmax(dim=-1)
    return beside[..., 0] / beside[..., 1]


def softplus(x: Tensor, exp: Callable[[Tensor], Tensor] = _exp) -> Tensor:
    """Return log(1 + e^x), also where it is small: with u = e^-|x| as max(x, 0) + 2 artanh(u / (2 + u)), by its series.

    exp: returns e^x of x <= 0.

    A step may be a thousandth, of which log(1 + u) itself would lose half of the digits.
    """
    u = exp(-x.abs())
    ratio = u / (2 + u)
    square = ratio * ratio
    series = torch.full_like(square, 1 / _LAST_TERM)
    for term in range(_LAST_TERM - 2, 0, -2):
        series = series * square + 1 / term
    return x.clamp_min(0.0) + 2 * ratio * series
