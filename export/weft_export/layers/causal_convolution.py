"""A convolution over the last few positions, each channel by itself: over a whole sequence, and a run at a time."""

import torch
from torch import Tensor, nn


class CausalConvolution(nn.Module):
    """y_t = sum_k w_k x_{t - taps + 1 + k} + b, elementwise; what stands before the first position is 0.

    It is a sum of products and no operator. So how many positions a run has does not show in the bits of any.
    """

    def __init__(self, width: int, taps: int, *, bias: bool) -> None:
        super().__init__()
        self.taps = taps
        self.weight = nn.Parameter(torch.empty(taps, width))
        nn.init.normal_(self.weight, std=taps**-0.5)
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map the whole of x [batch, seq, width] to the same shape."""
        return self._over(nn.functional.pad(x, (0, 0, self.taps - 1, 0)))

    def step(self, x: Tensor, past: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Map the next positions x [batch, seq, width], of which lengths int32 [batch] are real.

        past: the last inputs before them, [batch, taps - 1, width]. Returns the outputs and the present of that.
        """
        seen = torch.cat((past, x), dim=1)
        last = lengths.long()[:, None] + torch.arange(self.taps - 1)
        present = seen.gather(1, last[:, :, None].expand(-1, -1, x.shape[-1]))
        return self._over(seen), present

    def _over(self, seen: Tensor) -> Tensor:
        """Return the outputs of all positions but the first taps - 1."""
        behind = self.taps - 1
        out = seen[:, behind:] * self.weight[behind]
        for back in range(1, self.taps):
            out = out + seen[:, behind - back : -back] * self.weight[behind - back]
        return out if self.bias is None else out + self.bias
