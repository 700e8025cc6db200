"""A mixture of experts: of many feed-forward networks, each token passes the few that its router chooses."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.block_linear import BlockLinear
from weft_export.layers.nf4_linear import Nf4Linear
from weft_export.layers.quantized_linear import QuantisedLinear

_ROUNDED = (BlockLinear, Nf4Linear, QuantisedLinear)


class Experts(nn.Module):
    """y = sum of g_e FFN_e(x) over the chosen experts e ("Mixtral of Experts", Jiang et al. 2024, section 2.1).

    The router is a matrix, and never rounded: another expert would be another answer.
    Each expert reads the rows that chose it, and no others. What a row gets is added up in the order of the experts, so
    its bits depend on no other row. ONNX Runtime's operator MoE is not used: there they do.

    num_chosen: how many experts a token passes.
    normed: the g_e of a token are the softmax over the scores of its experts. Otherwise over those of all.
    bias: scores have one, as in gpt-oss.
    shared: a network that every token passes, added to what its experts give ("DeepSeekMoE", Dai et al. 2024, section
        3.2). None: there is none.
    """

    def __init__(
        self,
        d_model: int,
        num_experts: int,
        num_chosen: int,
        make: Callable[[], nn.Module],
        *,
        normed: bool,
        bias: bool = False,
        shared: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.num_chosen, self.normed = num_chosen, normed
        self.router = nn.Parameter(torch.empty(num_experts, d_model))
        nn.init.normal_(self.router, std=d_model**-0.5)
        self.router_bias = nn.Parameter(torch.zeros(num_experts)) if bias else None
        # Any: torch does not type the items of a ModuleList.
        self.experts: Any = nn.ModuleList(make() for _ in range(num_experts))
        self.shared = shared

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape."""
        out = self._chosen(x)
        return out if self.shared is None else out + self.shared(x)

    def _chosen(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        gates = self.gates(rows)
        # Some products give a row alone other bits than in company: docs/decisions/batch-invariance.md, rule 5. So each
        # expert that is chosen reads one row more, which nobody looks at. Rounded ones all do: their operators take no
        # empty input.
        is_rounded = any(isinstance(module, _ROUNDED) for module in self.experts.modules())
        more = torch.ones_like(gates[:1]) if is_rounded else gates.amax(dim=0, keepdim=True)
        rows, gates = torch.cat((rows, torch.zeros_like(rows[:1]))), torch.cat((gates, more))
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            gate = gates[:, number]
            places = gate.nonzero().squeeze(-1)
            given = expert(rows.index_select(0, places))
            out = out.index_add(0, places, given * gate.index_select(0, places)[:, None].to(given.dtype))
        return out[: x.shape[0] * x.shape[1]].reshape(x.shape)

    def gates(self, rows: Tensor) -> Tensor:
        """Return g [tokens, experts], float32, of rows [tokens, d_model]: 0 for experts that are not chosen."""
        scores = functional.linear(rows, self.router, self.router_bias).float()
        best, chosen = scores.topk(self.num_chosen, dim=-1)
        shares = best.softmax(dim=-1) if self.normed else scores.softmax(dim=-1).gather(-1, chosen)
        return torch.zeros_like(scores).scatter(-1, chosen, shares)
