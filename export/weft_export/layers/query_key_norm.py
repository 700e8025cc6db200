"""RMSNorms of queries and keys before they meet: of each head, or of all heads together.

The operators of ONNX Runtime that attend take no such norm on CPU, so it stands before them.
"""

import torch
from torch import Tensor, nn

from weft_export.layers.style import RmsNorm


class HeadNorm(nn.Module):
    """RMSNorm of each head of queries, and of each head of keys, with one weight for all of them, as in Qwen 3."""

    def __init__(self, num_heads: int, num_kv_heads: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.query, self.key = RmsNorm(head_dim, eps), RmsNorm(head_dim, eps)

    def forward(self, qkv: Tensor) -> Tensor:
        """Map qkv [batch, seq, (heads + 2 kv_heads) * head_dim] to the same shape; values stay as they are."""
        heads = qkv.view(*qkv.shape[:2], self.num_heads + 2 * self.num_kv_heads, -1)
        first_value = self.num_heads + self.num_kv_heads
        query, key = heads[:, :, : self.num_heads], heads[:, :, self.num_heads : first_value]
        return torch.cat((self.query(query), self.key(key), heads[:, :, first_value:]), dim=-2).flatten(-2)


class WidthNorm(nn.Module):
    """RMSNorm of all heads of queries together, and of all heads of keys, as in OLMo 2 (OLMo Team 2024)."""

    def __init__(self, num_heads: int, num_kv_heads: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.query, self.key = RmsNorm(num_heads * head_dim, eps), RmsNorm(num_kv_heads * head_dim, eps)

    def forward(self, qkv: Tensor) -> Tensor:
        """Map qkv [batch, seq, (heads + 2 kv_heads) * head_dim] to the same shape; values stay as they are."""
        first_key = len(self.query.weight)
        first_value = first_key + len(self.key.weight)
        query, key = qkv[..., :first_key], qkv[..., first_key:first_value]
        return torch.cat((self.query(query), self.key(key), qkv[..., first_value:]), dim=-1)
