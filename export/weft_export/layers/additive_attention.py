"""Additive attention over annotations, whose keys are computed once for each source (Bahdanau et al. 2015)."""

import torch
from torch import Tensor, nn


class AdditiveAttention(nn.Module):
    """e_ij = v_a^T tanh(W_a s_{i-1} + U_a h_j), alpha_i = softmax(e_i), c_i = sum_j alpha_ij h_j (eqs. 5 and 6, A.1.2).

    U_a h_j is computed once for each source, as the paper advises, and kept beside the annotations h_j.
    """

    def __init__(self, d_query: int, d_annotation: int, d_attention: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_attention)  # W_a
        self.key = nn.Linear(d_annotation, d_attention, bias=False)  # U_a
        self.energy = nn.Linear(d_attention, 1, bias=False)  # v_a

    def forward(self, state: Tensor, annotations: Tensor, keys: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from state [batch, d_query] to the annotations where mask, bool [batch, source], is True.

        annotations is [batch, source, d_annotation], keys is U_a of them, [batch, source, d_attention].
        Returns the context [batch, d_annotation] and the weights [batch, source].
        """
        energies = self.energy((self.query(state)[:, None] + keys).tanh()).squeeze(-1)
        # Not -inf: a row without any memory must not become NaN.
        weights = torch.where(mask, energies, torch.finfo(energies.dtype).min).softmax(dim=-1)
        return (weights[:, None] @ annotations).squeeze(1), weights


def mask_of(lengths: Tensor, source: int) -> Tensor:
    """Return bool [batch, source], True in the first lengths [batch] positions."""
    return torch.arange(source) < lengths[:, None]
