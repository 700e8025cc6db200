"""Attention of each token to those around it, and to a first one that sees all ("Longformer", Beltagy et al. 2020)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.attention import SelfAttention
from weft_export.layers.cached_attention import KeyValue, split_heads
from weft_export.layers.unpadding import Unpadding


class WindowedAttention(SelfAttention):
    """Section 3.1: a token sees `reach` tokens on either side. The first is global: it sees all, and all see it.

    What the first token sees, it sees by products of its own: global_qkv. So others see it by the usual ones.

    The work grows with the length times the reach, and not with the square of the length: queries lie in blocks of
    `reach`, and each block meets the keys of three. No sum is over more than these, however long the text is.
    """

    unpads = False

    def __init__(self, d_model: int, num_heads: int, reach: int | None, **options: object) -> None:
        """Make the products. reach: None where no text is so long that a token does not see all."""
        super().__init__(d_model, num_heads, **options)  # type: ignore[arg-type]
        self.reach = reach
        self.global_qkv = nn.Linear(d_model, 3 * d_model)

    def encode(
        self,
        x: Tensor,
        lengths: Tensor | None,
        bias: Tensor | None = None,
        num_read: int | None = None,
        rotary: KeyValue | None = None,
        unpadding: Unpadding | None = None,
    ) -> Tensor:
        """Map x [batch, seq, d_model] to the same shape, of which the first lengths [batch] positions are real."""
        assert lengths is not None, "texts have lengths. This is a bug."
        others = (bias, num_read, rotary, unpadding)
        assert all(each is None for each in others), "they are not for windows. This is a bug."
        query, key, value = self.global_qkv(x).chunk(3, dim=-1)
        first = self._gathered(query[:, :1], key, value, lengths)
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        if self.reach is None:
            around = self._gathered(query, key, value, lengths)
        else:
            query, key, value = (split_heads(part, self.num_heads) for part in (query, key, value))
            around = self._around(query, key, value, lengths, self.reach)
        # One product: at int8 ONNX Runtime fails at weights that two products read.
        out: Tensor = self.output(torch.cat((first, around[:, 1:]), dim=1))
        return out

    def _around(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, reach: int) -> Tensor:
        """Return what each position gets of those around it and of the first, [batch, seq, d_model]."""
        seq, size = query.shape[2:]
        num_blocks = (seq + reach - 1) // reach
        behind = num_blocks * reach - seq
        # Scaled first, and summed up in float32: in half precision the products of large queries would overflow.
        query = query * size**-0.5
        blocks = functional.pad(query, (0, 0, 0, behind)).view(*query.shape[:2], num_blocks, reach, size)
        keys, values = (_threes(part, num_blocks, behind, reach) for part in (key, value))
        scores = torch.cat((blocks @ key[:, :, None, :1].transpose(-2, -1), blocks @ keys.transpose(-2, -1)), dim=-1)
        # Key j of a block's three stands j - reach behind the block's first query.
        apart = torch.arange(3 * reach) - torch.arange(reach)[:, None]
        place = torch.arange(num_blocks)[:, None] * reach + torch.arange(3 * reach) - reach
        # The first is seen beside the window, and not twice.
        is_there = (place > 0) & (place < lengths[:, None, None])
        seen = ((apart >= 0) & (apart <= 2 * reach)) & is_there[:, None, :, None]
        scores = scores.masked_fill(~functional.pad(seen, (1, 0), value=True), -math.inf)
        weights = scores.float().softmax(dim=-1).to(value.dtype)
        out = weights[..., 1:] @ values + weights[..., :1] * value[:, :, None, :1]
        return out.flatten(2, 3)[:, :, :seq].transpose(1, 2).flatten(2)


def _threes(x: Tensor, num_blocks: int, behind: int, reach: int) -> Tensor:
    """Return for each block of queries the keys before, beside and behind it, [batch, h, blocks, 3 reach, size]."""
    padded = functional.pad(x, (0, 0, reach, reach + behind))
    blocks = padded.view(*x.shape[:2], num_blocks + 2, reach, x.shape[3])
    return torch.cat((blocks[:, :, :-2], blocks[:, :, 1:-1], blocks[:, :, 2:]), dim=3)
