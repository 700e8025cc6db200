"""What T5 adds to the scores of its self-attention: a learned number for each head and bucket of offsets."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.positions import relative_buckets


class RelativeBias(nn.Module):
    """b[head, bucket(key - query)], shared by the layers of a stack (Raffel et al. 2020, section 2.1)."""

    index: Tensor

    def __init__(
        self, num_heads: int, max_tokens: int, num_buckets: int, max_distance: int, *, bidirectional: bool
    ) -> None:
        super().__init__()
        self.buckets = nn.Embedding(num_buckets, num_heads)
        place = torch.arange(max_tokens)
        index = relative_buckets(place - place[:, None], num_buckets, max_distance, bidirectional=bidirectional)
        self.register_buffer("index", index, persistent=False)

    def forward(self, seq: int) -> Tensor:
        """Return the bias of a whole sequence, [1, h, seq, seq]."""
        return self._rows()[:seq, :, :seq].transpose(0, 1)[None]

    def at(self, positions: Tensor) -> Tensor:
        """Return the rows of queries at positions [batch, seq] over all keys, [batch, h, seq, max_tokens].

        A position beyond the last, which only padding has, gets the last one's row.
        """
        rows = self._rows()
        picked = functional.embedding(positions.clamp(max=rows.shape[0] - 1), rows.flatten(1))
        return picked.view(*positions.shape, *rows.shape[1:]).transpose(1, 2)

    def _rows(self) -> Tensor:
        """Return the bias of each query, [max_tokens, h, max_tokens].

        ONNX Runtime folds it into a constant when it loads the graph: 4 h max_tokens^2 bytes for each session.
        """
        bias: Tensor = self.buckets(self.index)
        return bias.transpose(1, 2)
