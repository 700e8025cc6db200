"""From a vector for each position to one: the mean of all, or the last real one."""

import torch
from torch import Tensor

from weft_export.layers.explaining import noted


def mean_over_positions(x: Tensor) -> Tensor:
    """Return the mean [batch, d_model] of x [batch, positions, d_model]."""
    # A product, not a mean: ONNX Runtime sums one row in another order than a batch of rows.
    share = torch.full((1, x.shape[1]), 1 / x.shape[1], dtype=x.dtype)
    return (share @ x)[:, 0]


def last_position(x: Tensor, lengths: Tensor) -> Tensor:
    """Pick from x [batch, seq, width] each row's last real position, lengths[b] - 1: [batch, width].

    Both are noted. graphs/score_graph.py takes a decoder's graph apart there.
    """
    index = (lengths.long() - 1)[:, None, None].expand(-1, 1, x.shape[-1])
    return noted(noted(x).gather(1, index).squeeze(1))
