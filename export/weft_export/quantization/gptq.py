"""Rounds weights to 4 bits so that what a product writes changes little, and not so that each weight does.

"GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", Frantar et al. 2022. Columns of the
weights are rounded one after the other. What that changes in the outputs, later columns make good, as far as the inputs
of a few requests say how. Columns that read the largest inputs come first, while most others are left to do so.
"""

import torch
from torch import Tensor
from torch.nn import functional

from weft_export.layers.block_linear import Blocks, quantise_blocks

DAMPING = 1.0
"""What is added to the mean square of each input, in mean squares of all of them.

The paper adds 0.01, and reads 260,000 tokens. We read hundreds, which say less of how inputs go together.
SmolLM2-135M at 4 bits, its embeddings at 8, 740 tokens of our own texts, other texts then: 0.194 nats at 0.01, 0.147 at
0.1, 0.144 at 1; each weight by itself 0.309 (2026-11-28).
"""
# So many columns are rounded until the others are told.
_AT_ONCE = 64
_LEAST = 1e-6


def compensated_blocks(weight: Tensor, inputs: Tensor, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """Do as quantise_blocks for weights [n, width] that read rows like inputs [rows, width].

    Weights that lie on a grid already stay what they are.
    """
    mean_squares, factor = _cholesky(functional.pad(inputs, (0, -inputs.shape[1] % blocks.size)))
    # Nothing counts for nothing: weights on a grid keep it.
    importance = mean_squares[: weight.shape[1]].clamp(min=_LEAST * float(mean_squares.mean()) or 1.0)
    levels, scales = quantise_blocks(weight, blocks, importance=importance)
    zero, steps = 1 << blocks.bits - 1, scales.float().repeat_interleave(blocks.size, dim=1)
    order = mean_squares.argsort(descending=True, stable=True)
    left = functional.pad(weight, (0, -weight.shape[1] % blocks.size))[:, order]
    found = torch.empty_like(left)
    for first in range(0, len(order), _AT_ONCE):
        stop = min(first + _AT_ONCE, len(order))
        errors = torch.empty_like(left[:, first:stop])
        for column in range(first, stop):
            step = steps[:, order[column]]
            found[:, column] = (left[:, column] / step).round().clamp(-zero, zero - 1)
            error = (left[:, column] - found[:, column] * step) / factor[column, column]
            left[:, column:stop] -= error[:, None] * factor[column, column:stop]
            errors[:, column - first] = error
        left[:, stop:] -= errors @ factor[first:stop, stop:]
    levels = torch.empty_like(found).index_copy_(1, order, found).view_as(levels)
    return (levels + zero).to(torch.uint8), scales


def _cholesky(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean square of each input [width], and U [width, width], upper triangular, of inputs sorted by it.

    U^T U is the inverse of the damped covariance: row j says how what is lost in column j is made good by later ones.
    """
    mean_squares = inputs.square().mean(dim=0)
    sorted_inputs = inputs[:, mean_squares.argsort(descending=True, stable=True)].double()
    damped = sorted_inputs.T @ sorted_inputs / len(inputs)
    # Where all inputs are 0, any number does.
    damped.diagonal().add_(DAMPING * float(mean_squares.mean()) or 1.0)
    # The covariance is R R^T, R being upper triangular, and U its inverse: half the work of inverting the covariance.
    root = torch.linalg.cholesky(damped.flip(0, 1)).flip(0, 1)
    identity = torch.eye(len(root), dtype=root.dtype)
    return mean_squares, torch.linalg.solve_triangular(root, identity, upper=True).float()
