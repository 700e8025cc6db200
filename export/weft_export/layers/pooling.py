"""From a vector for each position to one: the mean of all or of real ones, the last real one, or the largest values."""

import math

import torch
from torch import Tensor

from weft_export.layers.attention import padding_mask
from weft_export.layers.explaining import noted

FIRST, MEAN, LAST, MAX = POOLINGS = "first", "mean", "last", "max"
"""What configs call the ways to pool."""
NONE = "none"
"""Each place keeps its vector."""
ATTENTION = "attention"
"""What a learned query reads, which is a layer of its own: see attention_pooling.py."""


def mean_over_positions(x: Tensor) -> Tensor:
    """Return the mean [batch, d_model] of x [batch, positions, d_model]."""
    # A product, not a mean: ONNX Runtime sums one row in another order than a batch of rows.
    share = torch.full((1, x.shape[1]), 1 / x.shape[1], dtype=x.dtype)
    return (share @ x)[:, 0]


def mean_of_real(x: Tensor, lengths: Tensor) -> Tensor:
    """Return the mean [batch, width] of each row's first lengths[b] positions of x [batch, seq, width]."""
    # A product, not a masked sum: ONNX Runtime sums one row in another order than a batch of rows.
    real = padding_mask(lengths, x.shape[1])[:, 0].to(x.dtype)
    return (real / lengths[:, None, None].to(x.dtype) @ x)[:, 0]


def max_of_real(x: Tensor, lengths: Tensor) -> Tensor:
    """Return the largest value of each dimension, likewise. No order of comparing changes it."""
    real = padding_mask(lengths, x.shape[1])[:, 0, 0, :, None]
    return x.masked_fill(~real, -math.inf).amax(dim=1)


def last_position(x: Tensor, lengths: Tensor) -> Tensor:
    """Pick from x [batch, seq, width] each row's last real position, lengths[b] - 1: [batch, width].

    Both are noted. graphs/score_graph.py takes a decoder's graph apart there.
    """
    return noted(position_before_end(noted(x), lengths))


def last_positions(x: Tensor, lengths: Tensor) -> Tensor:
    """Do as last_position for lengths [rows], of which there may be more than rows of x: [rows, width].

    Those behind are of the last row of x. So of a batch of one, they may ask for any of its positions.
    """
    rows = torch.minimum(torch.arange(lengths.shape[0]), torch.arange(x.shape[0])[-1:])
    return noted(noted(x).flatten(0, 1).index_select(0, rows * x.shape[1] + lengths.long() - 1))


def position_before_end(x: Tensor, lengths: Tensor) -> Tensor:
    """Do as last_position for a model that is taken apart nowhere."""
    index = (lengths.long() - 1)[:, None, None].expand(-1, 1, x.shape[-1])
    return x.gather(1, index).squeeze(1)
