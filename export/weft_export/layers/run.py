"""One run of a decoder: the tokens of each row, and how far each row has come."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Run:
    """What one run of a decoder is given besides the states.

    input_ids: int64 [batch, seq], right-padded. With a RECURRENT state, seq is 1.
    past_lengths: int32 [batch], how many tokens came before.
    lengths: int32 [batch], how many of seq are real.
    total_length: int32 [1], the capacity of the caches.
    memory_lengths: int32 [batch], how much of each row's memory is real. None without a MEMORY state.
    """

    input_ids: Tensor
    past_lengths: Tensor
    lengths: Tensor
    total_length: Tensor
    memory_lengths: Tensor | None

    @property
    def last_index(self) -> Tensor:
        """The cache index of each row's last token of this run, int32 [batch].

        Padding counts as written: causality hides it from real tokens, and the next run overwrites it.

        The tokens are counted, and not read from the shape. A shape lies on the host. So for a device, ONNX Runtime
        would also add on the host. It would then read past_lengths there once, when the memory is bound, and never
        again.
        """
        return self.past_lengths + (self.input_ids >= 0).sum(dim=1, dtype=torch.int32) - 1
