"""The position-wise layers between attentions."""

from torch import Tensor, nn
from torch.nn import functional


class FeedForward(nn.Module):
    """FFN(x) = GELU(x W1 + b1) W2 + b2 ("Attention Is All You Need", section 3.3, with the GELU of BERT and ViT)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape."""
        out: Tensor = self.outer(functional.gelu(self.inner(x)))
        return out


class SwiGlu(nn.Module):
    """FFN(x) = (SiLU(x W) * x V) W2, without biases ("GLU Variants Improve Transformer", Shazeer 2020, eq. 6)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.inner = nn.Linear(d_model, d_ff, bias=False)
        self.outer = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape."""
        out: Tensor = self.outer(functional.silu(self.gate(x)) * self.inner(x))
        return out
