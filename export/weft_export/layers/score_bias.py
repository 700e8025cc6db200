"""What is added to the scores of attention, by the places of query and key alone; T5's table too."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.positions import relative_buckets


class ScoreBias(nn.Module):
    """b[head, query, key]. A kind of it says its rows."""

    def rows(self) -> Tensor:
        """Return the bias of each query, [max_tokens, h, max_tokens]."""
        raise NotImplementedError

    def forward(self, seq: int) -> Tensor:
        """Return the bias of a whole sequence, [1, h, seq, seq]."""
        return self.rows()[:seq, :, :seq].transpose(0, 1)[None]

    def at(self, positions: Tensor) -> Tensor:
        """Return the rows of queries at positions [batch, seq] over all keys, [batch, h, seq, max_tokens].

        A position beyond the last, which only padding has, gets the last one's row.
        """
        rows = self.rows()
        picked = functional.embedding(positions.clamp(max=rows.shape[0] - 1), rows.flatten(1))
        return picked.view(*positions.shape, *rows.shape[1:]).transpose(1, 2)


class Alibi(ScoreBias):
    """m_h * (key's place), the same for every query ("Train Short, Test Long", Press et al. 2022, section 3).

    The paper adds m_h * (key - query). Softmax does not see what is the same for all keys.
    """

    line: Tensor

    def __init__(self, num_heads: int, max_tokens: int, scale: float = 1.0, *, coarse: bool = False) -> None:
        """Take what the bias is multiplied by: 1 in the paper and in BLOOM, 1 / sqrt(head_dim) in Falcon.

        coarse: it is rounded to bfloat16 before that. Falcon's code does so at any precision.
        """
        super().__init__()
        data_type = torch.bfloat16 if coarse else torch.float32
        line = alibi_slopes(num_heads).to(data_type)[:, None] * torch.arange(max_tokens)
        self.register_buffer("line", line.float() * scale, persistent=False)

    def rows(self) -> Tensor:
        """See ScoreBias."""
        return self.line.expand(self.line.shape[1], -1, -1)

    def at(self, positions: Tensor) -> Tensor:
        """See ScoreBias. All queries have the same row, so none is looked up."""
        return self.line[:, None].expand(positions.shape[0], -1, positions.shape[1], -1)


def alibi_slopes(num_heads: int) -> Tensor:
    """Return m [h]: powers of 2^(-8 / n) for n heads, n a power of 2.

    For other numbers the nearest smaller power n comes first, and then every second slope of 2 n (the authors' code).
    """
    power = 1 << (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-8 / power * torch.arange(1, power + 1, dtype=torch.float64))
    between = 2.0 ** (-4 / power * (1 + 2 * torch.arange(num_heads - power, dtype=torch.float64)))
    return torch.cat((slopes, between)).float()


class RelativeBias(ScoreBias):
    """b[head, bucket(key - query)], shared by the layers of a stack (Raffel et al. 2020, section 2.1).

    Or each layer has its own (UMT5; Chung et al. 2023). Then the heads of all layers lie in one table.
    """

    index: Tensor

    def __init__(
        self,
        num_heads: int,
        max_tokens: int,
        num_buckets: int,
        max_distance: int,
        *,
        bidirectional: bool,
        num_tables: int = 1,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.buckets = nn.Embedding(num_buckets, num_heads * num_tables)
        place = torch.arange(max_tokens)
        index = relative_buckets(place - place[:, None], num_buckets, max_distance, bidirectional=bidirectional)
        self.register_buffer("index", index, persistent=False)

    def in_layers(self, bias: Tensor, num_layers: int) -> Sequence[Tensor]:
        """Return what each of num_layers layers adds, of a bias of all heads."""
        tables = bias.chunk(bias.shape[1] // self.num_heads, dim=1)
        return tables if len(tables) == num_layers else tables * num_layers

    def rows(self) -> Tensor:
        """Return the bias of each query, [max_tokens, h, max_tokens].

        ONNX Runtime folds it into a constant when it loads the graph: 4 h max_tokens^2 bytes for each session.
        """
        bias: Tensor = self.buckets(self.index)
        return bias.transpose(1, 2)
