"""Mamba's layer: a state of constant size, each number of which forgets at a rate of its own, token by token.

"Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (Gu and Dao 2023). In each channel of x [inner]

    h_t = exp(-dt_t rate) h_{t-1} + b_t dt_t x_t        y_t = c_t h_t + skip x_t

with h, rate, b and c of d_state numbers. Mamba 2 has one rate for a head, so a block of tokens is a product of matrices
there. Here it is none: a state passes through memory for each token. What a token does to it does not hang on the
others of its run, so a prompt may be cut anywhere.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.causal_convolution import CausalConvolution
from weft_export.layers.state_space import softplus
from weft_export.layers.style import RmsNorm

OPERATOR = "weft::Select"
"""Stands in a traced graph for tokens_through. graphs/recurring.py puts a Scan of ONNX in its place."""


@dataclass(frozen=True)
class SelectiveSizes:
    """Of one layer.

    d_inner: how many channels there are.
    d_state: how many numbers each of them keeps.
    step_rank: how wide that is which says how long a token's steps are.
    taps: how many positions the convolution before it sees.
    convolution_bias, bias: whether that has one, and whether the first and the last product have.
    inner_norm_eps: what says the steps, b and c pass an RMSNorm with it, as in Falcon Mamba. None: they do not.
    """

    d_inner: int
    d_state: int
    step_rank: int
    taps: int = 4
    convolution_bias: bool = True
    bias: bool = False
    inner_norm_eps: float | None = None


class SelectiveStateSpace(nn.Module):
    """y = W_o (scan(x, b, c, dt) * silu(z)), where x and z are W_i of the input.

    x passes a short convolution and a SiLU before. b, c and dt are W_x of it.
    """

    def __init__(self, d_model: int, sizes: SelectiveSizes) -> None:
        super().__init__()
        self.sizes = sizes
        inner, kept = sizes.d_inner, sizes.d_state
        self.parts = [sizes.step_rank, kept, kept]
        self.input = nn.Linear(d_model, 2 * inner, bias=sizes.bias)
        self.convolution = CausalConvolution(inner, sizes.taps, bias=sizes.convolution_bias)
        self.selection = nn.Linear(inner, sum(self.parts), bias=False)
        self.steps = nn.Linear(sizes.step_rank, inner, bias=False)
        self.step_bias = nn.Parameter(torch.zeros(inner))
        self.rate = nn.Parameter(torch.ones(kept, inner))
        self.skip = nn.Parameter(torch.ones(inner))
        self.output = nn.Linear(inner, d_model, bias=sizes.bias)
        eps = sizes.inner_norm_eps
        self.norms = nn.ModuleList(RmsNorm(width, eps) for width in self.parts) if eps is not None else None
        self.state_shapes = {"inputs": (sizes.taps - 1, inner), "state": (kept, inner)}

    def forward(self, x: Tensor) -> Tensor:
        """Map the whole of x [batch, seq, d_model] to the same shape."""
        past = tuple(torch.zeros(x.shape[0], *shape, dtype=x.dtype) for shape in self.state_shapes.values())
        lengths = torch.full((x.shape[0],), x.shape[1], dtype=torch.int32)
        return self.step(x, past, lengths)[0]

    def step(self, x: Tensor, past: tuple[Tensor, ...], lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Map the next positions x [batch, seq, d_model], of which lengths int32 [batch] are real.

        past: what the convolution looks at, and the state [batch, d_state, inner]. Returns those after the last real
        position too.
        """
        value, gate = self.input(x).chunk(2, dim=-1)
        value, seen = self.convolution.step(value, past[0], lengths)
        value = functional.silu(value)
        rank, write, read = torch.split(self.selection(value), self.parts, dim=-1)
        if self.norms is not None:
            rank, write, read = (norm(part) for norm, part in zip(self.norms, (rank, write, read), strict=True))
        # A step of length 0 forgets nothing and writes nothing.
        real = torch.arange(x.shape[1]) < lengths[:, None]
        # Of exponentials there are too many for quotients of a softmax. ONNX Runtime computes Exp by its own vectors,
        # also where fewer numbers are left than one holds; tests hold it to that.
        steps = softplus(self.steps(rank) + self.step_bias, torch.exp) * real[:, :, None].to(x.dtype)
        out, state = tokens_through(
            past[1], -steps[:, :, None], self.rate, (steps * value)[:, :, None], write[..., None], read[:, :, None]
        )
        out = out[:, :, 0] + value * self.skip
        return self.output(out * functional.silu(gate)), (seen, state)


def tokens_through(
    state: Tensor, steps: Tensor, rate: Tensor, values: Tensor, writes: Tensor, reads: Tensor
) -> tuple[Tensor, Tensor]:
    """Let tokens, one after the other, multiply the state by what they leave of it, add what they write, and read it.

    state: [batch, d_state, inner].
    steps: how long each is, as numbers of 0 or below, [batch, seq, 1, inner].
    rate: [d_state, inner].
    values: [batch, seq, 1, inner].
    writes: [batch, seq, d_state, 1].
    reads: [batch, seq, 1, d_state].

    Returns what each token reads, as values, and the last state.
    """
    if torch.onnx.is_in_onnx_export():
        out, last = torch.onnx.ops.symbolic_multi_out(
            OPERATOR,
            (state, steps, values, writes, reads, rate),
            {},
            dtypes=(state.dtype, state.dtype),
            shapes=(values.shape, state.shape),
            version=1,
        )
        return out, last
    read = []
    for token in range(values.shape[1]):
        state = state * (steps[:, token] * rate).exp() + writes[:, token] * values[:, token]
        read.append(reads[:, token] @ state)
    return torch.stack(read, dim=1), state
