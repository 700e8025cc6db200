"""Products in 8-bit integers: a scale for each row of activations as it comes, and one for each column of weights.

"LLM.int8()" (Dettmers et al. 2022), section 2, without its outliers: y = (s_row * s_column) (x_q W_q). A row is rounded
by its own largest value, so its bits are the same in any batch. ONNX Runtime's own dynamic quantisation takes one scale
for all rows, and does not have that. The torch branch does the operators' arithmetic: the same x gives the same bits.
"""

import torch
from torch import Tensor, nn

LEVELS = 127
"""On both sides of zero. -128 is left out, which makes the range symmetric."""
MIN_COLUMNS = 16
"""A product with fewer columns costs less than rounding its rows. For example, a head of few labels has few."""
_ZERO_POINT = 128
# Sums of this many products of levels are below 2^24, so float32 adds them without rounding.
_EXACT = 1024


def quantise(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Round float rows [n, width] to int8 [n, width] and scales float32 [n, 1], whose product is nearest to them."""
    scale = rows.abs().amax(dim=1, keepdim=True) / LEVELS
    scale = torch.where(scale > 0, scale, 1.0)
    return (rows / scale).round().to(torch.int8), scale


def integer_product(x: Tensor, columns: Tensor, scale: Tensor, wide: Tensor) -> Tensor:
    """Return x W for x [..., d_in] in float32 and W = columns * scale, int8 [d_in, d_out] and float32 [d_out].

    wide is columns in float32. It is for torch, which is slow to multiply integers, and to widen them in each call.
    """
    # Unlike a sum, the largest value of a row does not depend on the order.
    step = x.abs().amax(dim=-1, keepdim=True) * (1 / LEVELS)
    if torch.onnx.is_in_onnx_export():
        return _emit(x, step, columns, scale)
    # A row of zeros has a step of 0, and so no levels. Any number may stand for them: it is multiplied by that step.
    levels = (x / step).round().nan_to_num().clamp(-LEVELS, LEVELS)
    total = torch.zeros(*x.shape[:-1], columns.shape[1], dtype=torch.int32)
    for start in range(0, columns.shape[0], _EXACT):
        part = slice(start, start + _EXACT)
        total += (levels[..., part] @ wide[part]).to(torch.int32)
    return total.float() * scale * step


class QuantisedLinear(nn.Module):
    """Stands for an nn.Linear.

    factors [d_in] multiply its weights, and what it reads is divided by them.
    """

    columns: Tensor
    wide: Tensor
    scale: Tensor
    bias: Tensor | None
    inverse: Tensor | None

    def __init__(self, linear: nn.Linear, factors: Tensor | None = None) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        weight, scale = quantise(weight if factors is None else weight * factors)
        self.register_buffer("columns", weight.t().contiguous())
        self.register_buffer("wide", self.columns.float())
        self.register_buffer("scale", scale[:, 0])
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float())
        self.register_buffer("inverse", None if factors is None else factors.reciprocal())

    def product(self, x: Tensor) -> Tensor:
        """Multiply x [..., d_in] by the weights: [..., d_out]."""
        x = x if self.inverse is None else x * self.inverse
        return integer_product(x, self.columns, self.scale, self.wide)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., d_in] to [..., d_out]."""
        out = self.product(x)
        return out if self.bias is None else out + self.bias


class QuantisedEmbedding(nn.Module):
    """Stands for a TiedEmbedding: each token's vector has a scale, and that is its column's in the projection too.

    factors [d_model] multiply the table. What is projected comes divided by them, and what is looked up leaves so.
    """

    rows: Tensor
    wide: Tensor
    scale: Tensor
    inverse: Tensor | None

    def __init__(self, embedding: nn.Embedding, factors: Tensor | None = None) -> None:
        super().__init__()
        weight = embedding.weight.detach().float()
        rows, scale = quantise(weight if factors is None else weight * factors)
        self.register_buffer("rows", rows)
        self.register_buffer("wide", rows.t().float())
        self.register_buffer("scale", scale)
        self.register_buffer("inverse", None if factors is None else factors.reciprocal())

    def forward(self, ids: Tensor) -> Tensor:
        """Return E[token] for ids [...]: [..., d_model]."""
        vectors = nn.functional.embedding(ids, self.rows).float() * nn.functional.embedding(ids, self.scale)
        return vectors if self.inverse is None else vectors * self.inverse

    def logits(self, x: Tensor) -> Tensor:
        """Project x [..., d_model] to [..., vocab] with the embedding itself."""
        return integer_product(x, self.rows.t(), self.scale[:, 0], self.wide)


def _emit(x: Tensor, step: Tensor, columns: Tensor, scale: Tensor) -> Tensor:
    # Rounding in blocks as wide as the row is one pass over x. Unsigned activations with signed weights are the pair
    # that ONNX Runtime is fast at. Signed activations take ten times as long.
    # Made of the sizes, not of step: so all products of as many rows share them.
    zero_points = torch.full((*x.shape[:-1], 1), _ZERO_POINT, dtype=torch.uint8)
    levels = torch.onnx.ops.symbolic(
        "::QuantizeLinear",
        (x, step, zero_points),
        {"axis": -1, "block_size": columns.shape[0]},
        dtype=torch.uint8,
        shape=x.shape,
        version=21,
    )
    one, zero_point = torch.tensor(1.0), torch.tensor(_ZERO_POINT, dtype=torch.uint8)
    product = torch.onnx.ops.symbolic(
        "com.microsoft::MatMulIntegerToFloat",
        (levels, columns, one, scale, zero_point),
        dtype=torch.float32,
        shape=(*x.shape[:-1], columns.shape[1]),
        version=1,
    )
    return product * step
