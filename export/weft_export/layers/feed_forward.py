"""The position-wise layers between attentions."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.block_linear import BlockLinear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    # "Primer" (So et al. 2021, section 4.1).
    "relu2": lambda x: functional.relu(x).square(),
    "gelu": functional.gelu,
    # GPT's and T5's form ("Gaussian Error Linear Units", Hendrycks and Gimpel 2016, section 2).
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "tanh": torch.tanh,
    # CLIP's: x sigmoid(1.702 x).
    "quick_gelu": lambda x: x * (1.702 * x).sigmoid(),
}


class FeedForward(nn.Module):
    """FFN(x) = f(x W1 + b1) W2 + b2: ReLU in "Attention Is All You Need", section 3.3, GELU in BERT and ViT.

    activation is a key of ACTIVATIONS.
    """

    def __init__(self, d_model: int, d_ff: int, *, activation: str = "gelu", bias: bool = True) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape."""
        out: Tensor = self.down_proj(self.activation(self.up_proj(x)))
        return out


class GatedFeedForward(nn.Module):
    """FFN(x) = (f(x W) * x V) W2, in the paper without biases ("GLU Variants ...", Shazeer 2020, eq. 6).

    activation is a key of ACTIVATIONS: GEGLU with a GELU, SwiGLU (Llama) with "silu".
    limit: x W is cut to at most that, x V to at most that on either side, and 1 is added to x V, as in gpt-oss.
    """

    def __init__(
        self, d_model: int, d_ff: int, *, activation: str, bias: bool = False, limit: float | None = None
    ) -> None:
        super().__init__()
        self.activation, self.limit = ACTIVATIONS[activation], limit
        self.gate_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape."""
        out: Tensor = self.down_proj(self.gated(self.gate_proj(x), self.up_proj(x)))
        return out

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        """Return what the last product reads, of x W and x V [..., d_ff]."""
        if self.limit is not None:
            gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit) + 1
        return self.activation(gate) * up


class MergedFeedForward(nn.Module):
    """A GatedFeedForward over copies of its weights, whose first two products are one."""

    def __init__(self, gated: GatedFeedForward, first: nn.Module) -> None:
        super().__init__()
        self.gated, self.down_proj = gated.gated, gated.down_proj
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape."""
        gate, up = self.first(x).chunk(2, dim=-1)
        out: Tensor = self.down_proj(self.gated(gate, up))
        return out


def merge_feed_forwards(model: nn.Module) -> None:
    """Make one product of two in each GatedFeedForward of a model, in place.

    A device reads what is multiplied once then, and has one kernel less to start.
    """
    for module in list(model.modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, GatedFeedForward) and (first := _joined(part.gate_proj, part.up_proj)):
                setattr(module, name, MergedFeedForward(part, first))


def _joined(gate: nn.Module, up: nn.Module) -> nn.Module | None:
    """Return one product that writes what two write, or None if they are rounded in different ways."""
    if isinstance(gate, BlockLinear) and isinstance(up, BlockLinear):
        return gate.beside(up) if gate.blocks == up.blocks else None
    if not isinstance(gate, nn.Linear) or not isinstance(up, nn.Linear):
        return None
    with torch.device("meta"):
        both = nn.Linear(gate.in_features, 2 * gate.out_features, bias=gate.bias is not None)
    both.weight = nn.Parameter(torch.cat((gate.weight, up.weight)), requires_grad=False)
    if gate.bias is not None:
        both.bias = nn.Parameter(torch.cat((gate.bias, up.bias)), requires_grad=False)
    return both
