"""The position before each one: what RWKV's layers see of the past beside their state."""

import torch
from torch import Tensor

SHIFTED = 1
"""How many positions a state holds for it."""


def shifted(x: Tensor, past: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return what stands before each of the positions x [batch, seq, width], of which lengths int32 [batch] are real.

    past: what stands before the first of them, [batch, 1, width]. Returns the same of the next run too.
    """
    seen = torch.cat((past, x), dim=1)
    return seen[:, :-1], seen.gather(1, lengths.long()[:, None, None].expand(-1, -1, x.shape[-1]))
