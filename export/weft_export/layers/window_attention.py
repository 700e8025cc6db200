"""Multi-head self-attention within the windows of a grid ("Swin Transformer", Liu et al. 2021, section 3.2)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.explaining import noted, pick_head
from weft_export.layers.grid_positions import GridBias
from weft_export.layers.windows import Grid, flow_through, pick_windows, place_of, window_mask, window_positions


class WindowAttention(nn.Module):
    """softmax(Q K^T / sqrt(d) + B) V in each window of a grid (eq. 4). A shift other than 0 makes it SW-MSA.

    With `cosine` it is softmax(cos(Q, K) s + B) V, with an s for each head ("Swin Transformer V2", Liu et al. 2022,
    eq. 2). Its B is not less general, though the paper computes it by a small network.

    Gathers with fixed indices pick the windows out of the grid, and put them back. They roll and partition in one.
    """

    positions: Tensor
    places: Tensor
    hidden: Tensor

    def __init__(
        self, grid: Grid, window: Grid, shift: Grid, d_model: int, num_heads: int, *, cosine: bool = False
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        if cosine:
            self.scale = nn.Parameter(torch.full((num_heads, 1, 1), 10.0))  # s; the paper's 1 / tau
        self.cosine = cosine
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)
        self.bias = GridBias(*window, num_heads)
        positions = window_positions(grid, window, shift)
        self.register_buffer("positions", positions, persistent=False)
        self.register_buffer("places", place_of(positions), persistent=False)
        self.register_buffer("hidden", ~window_mask(grid, window, shift)[:, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, positions, d_model] to the same shape."""
        query, key, value = self._project(x)
        mixed = self._weights(query, key).to(value.dtype) @ value
        out: Tensor = self.output(mixed.transpose(2, 3).flatten(3).flatten(1, 2).index_select(1, self.places))
        return out

    def weights(self, x: Tensor) -> Tensor:
        """Return the attention weights [batch, windows, h, w, w] in float32 that forward uses."""
        query, key, _ = self._project(x)
        return noted(self._weights(query, key))

    def flow(self, row: Tensor, weights: Tensor) -> Tensor:
        """Return row A, the step of attention rollout, for a row [1, positions] and weights [windows, h, w, w]."""
        return flow_through(row, weights.mean(dim=1), self.positions)

    def mean_row(self, weights: Tensor, head: Tensor) -> Tensor:
        """Return the mean row [1, positions] over all queries of weights [windows, h, w, w]: of a head, or all (-1)."""
        windows, num_heads = weights.shape[:2]
        means = weights.mean(dim=2).transpose(0, 1).reshape(num_heads, 1, -1) / windows
        return pick_head(means, head)[:, self.places]

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value [batch, windows, h, w, head_dim]."""
        picked = pick_windows(self.qkv(x), self.positions)
        heads = picked.view(*picked.shape[:3], 3 * self.num_heads, -1).transpose(2, 3)
        query, key, value = heads.chunk(3, dim=2)
        return query, key, value

    def _weights(self, query: Tensor, key: Tensor) -> Tensor:
        query, key = query.float(), key.float()
        if self.cosine:
            products = functional.normalize(query, dim=-1) @ functional.normalize(key, dim=-1).transpose(-2, -1)
            scores = products * self.scale.float() + self.bias().float()
        else:
            scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]) + self.bias().float()
        weights: Tensor = scores.masked_fill(self.hidden, -torch.inf).softmax(dim=-1)
        return weights
