"""Root mean square normalisation; LayerNorm is torch's own."""

import torch
from torch import Tensor, nn


class RmsNorm(nn.Module):
    """RMSNorm(x) = x / sqrt(mean(x^2) + eps) * g (Zhang and Sennrich 2019), computed in float32 at any precision."""

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., d_model] to the same shape."""
        wide = x.float()
        # Divided by the root, not multiplied by its inverse: this shape of the formula is what ONNX Runtime fuses.
        root = torch.sqrt(wide.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return (wide / root).to(x.dtype) * self.gain
