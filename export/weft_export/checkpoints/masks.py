"""Where the masks of a text are, and texts that are masked to try a model."""

import torch
from torch import Tensor

# Of a text that is masked, as "BERT" (Devlin et al. 2019) masks 15%.
_EVERY = 7


def positions_of(ids: Tensor, mask_id: int) -> Tensor:
    """Return the positions int64 [masks] of the masks among ids [seq]."""
    return (ids == mask_id).nonzero()[:, 0]


def masked(ids: Tensor, mask_id: int) -> tuple[Tensor, Tensor]:
    """Return ids [seq] with a mask in the place of every seventh token, and the positions [masks]."""
    positions = torch.arange(min(_EVERY // 2, len(ids) - 1), len(ids), _EVERY)
    return ids.index_fill(0, positions, mask_id), positions
