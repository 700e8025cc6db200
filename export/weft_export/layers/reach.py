"""How far each layer of an encoder looks, and how it turns heads: some look everywhere, others around themselves."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from weft_export.layers.cached_attention import KeyValue
from weft_export.layers.positions import Rope, rope_tables

ALL = 0
UNSEEN = -1e4
"""Beside any other score its exponential is 0."""


class Reach(nn.Module):
    """Windows that reach as far ahead as back, and rotations ("ModernBERT", Warner et al. 2024, section 2.1)."""

    def __init__(
        self, num_positions: int, windows: Sequence[int], rotations: Sequence[Rope], rotation_of: Sequence[int]
    ) -> None:
        """Take each layer's window and rotation: how many places it sees on either side (ALL: all), and which table."""
        super().__init__()
        self.windows, self.rotation_of = tuple(windows), tuple(rotation_of)
        for index, rotation in enumerate(rotations):
            cos, sin = rope_tables(num_positions, rotation)
            self.register_buffer(f"cos_{index}", cos, persistent=False)
            self.register_buffer(f"sin_{index}", sin, persistent=False)

    def of(self, seq: int) -> list[tuple[KeyValue | None, Tensor | None]]:
        """Return each layer's tables and what is added to its scores, [1, 1, seq, seq]."""
        biases = {window: self._bias(window, seq) for window in dict.fromkeys(self.windows)}
        return [
            ((getattr(self, f"cos_{index}"), getattr(self, f"sin_{index}")), biases[window])
            for window, index in zip(self.windows, self.rotation_of, strict=True)
        ]

    @staticmethod
    def _bias(window: int, seq: int) -> Tensor | None:
        if window == ALL:
            return None
        place = torch.arange(seq)
        return torch.where((place - place[:, None]).abs() > window, UNSEEN, 0.0)[None, None]
