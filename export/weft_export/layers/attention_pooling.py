"""One vector of all positions, by a learned query that attends to them ("Set Transformer", Lee et al. 2019)."""

import torch
from torch import Tensor, nn

from weft_export.layers.cross_attention import CrossAttention
from weft_export.layers.style import Style


class AttentionPooling(nn.Module):
    """a = attention(q, x), and a + feed_forward(N(a)), with one query q for every input."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, style: Style) -> None:
        super().__init__()
        self.probe = nn.Parameter(torch.randn(1, 1, d_model) * 0.02)  # q
        self.attention = CrossAttention(d_model, num_heads, **style.attention)
        self.norm = style.plain_norm(d_model)
        self.feed_forward = style.feed_forward(d_model, d_ff)

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, d_model] of x [batch, positions, d_model]."""
        probe = self.probe.expand(x.shape[0], -1, -1)
        attended = self.attention(probe, self.attention.project(x), _everything())
        pooled: Tensor = attended + self.feed_forward(self.norm(attended))
        return pooled[:, 0]

    def weights(self, x: Tensor) -> Tensor:
        """Return what the query reads of each position, float32 [1, positions], of x [1, positions, d_model]."""
        weights = self.attention.weights(self.probe, self.attention.project(x), _everything())
        return weights[0].mean(dim=0)


def _everything() -> Tensor:
    return torch.ones(1, 1, 1, 1, dtype=torch.bool)
