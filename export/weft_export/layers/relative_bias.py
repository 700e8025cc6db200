"""What T5 adds to the scores of its self-attention: a learned number for each head and bucket of offsets."""

import torch
from torch import Tensor, nn

from weft_export.layers.positions import relative_buckets
from weft_export.layers.score_bias import ScoreBias


class RelativeBias(ScoreBias):
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

    def rows(self) -> Tensor:
        """Return the bias of each query, [max_tokens, h, max_tokens].

        ONNX Runtime folds it into a constant when it loads the graph: 4 h max_tokens^2 bytes for each session.
        """
        bias: Tensor = self.buckets(self.index)
        return bias.transpose(1, 2)
