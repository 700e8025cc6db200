"""One run of a decoder: the tokens of each row, and how far each row has come."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Run:
    """What one run of a decoder is given besides the states.

    input_ids is int64 [batch, seq], right-padded; past_lengths and lengths are int32 [batch], how many tokens came
    before and how many of seq are real; total_length is int32 [1], the caches' capacity; memory_lengths is int32
    [batch], how much of each row's memory is real, and None without a MEMORY state. With a RECURRENT state, seq is 1.
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
        Counted and not read from the shape, which lies on the host: for a device, ONNX Runtime would add there too, and
        then it reads past_lengths on the host, once, when the memory is bound.
        """
        return self.past_lengths + (self.input_ids >= 0).sum(dim=1, dtype=torch.int32) - 1
