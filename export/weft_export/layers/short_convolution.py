"""A gated short convolution, in the place of attention: it remembers the last few positions, however long a text is."""

from torch import Tensor, nn

from weft_export.layers.causal_convolution import CausalConvolution


class ShortConvolution(nn.Module):
    """y = W_o (c * conv(b * v)), where b, c and v are W_i x (LFM2, Liquid AI 2025).

    Its state is what the convolution still looks at: the last taps - 1 products b * v.
    """

    def __init__(self, d_model: int, taps: int, *, bias: bool) -> None:
        super().__init__()
        self.input = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.convolution = CausalConvolution(d_model, taps, bias=bias)
        self.output = nn.Linear(d_model, d_model, bias=bias)
        self.state_shapes = {"inputs": (taps - 1, d_model)}

    def forward(self, x: Tensor) -> Tensor:
        """Map the whole of x [batch, seq, d_model] to the same shape."""
        gated, gate = self._gated(x)
        out: Tensor = self.output(gate * self.convolution(gated))
        return out

    def step(self, x: Tensor, past: tuple[Tensor, ...], lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Map the next positions x [batch, seq, d_model], of which lengths [batch] are real; see CausalConvolution."""
        gated, gate = self._gated(x)
        convolved, present = self.convolution.step(gated, past[0], lengths)
        return self.output(gate * convolved), (present,)

    def _gated(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before, after, value = self.input(x).chunk(3, dim=-1)
        return before * value, after
