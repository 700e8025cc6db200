"""Which of a model's products are made in 8-bit integers: those of many columns, output projections included."""

import copy
from dataclasses import replace

from torch import nn

from weft_export.checkpoint import Checkpoint
from weft_export.embedding import TiedEmbedding
from weft_export.errors import CheckpointError
from weft_export.quantised_linear import QuantisedEmbedding, QuantisedLinear
from weft_export.vision import PatchEmbedding

MIN_COLUMNS = 16
"""A product with fewer columns costs less than rounding its rows; a head of few labels is one."""


def quantised(checkpoint: Checkpoint) -> Checkpoint:
    """Return a copy of a checkpoint whose model multiplies in 8-bit integers; everything else in it stays float32.

    Raises:
        CheckpointError: a weight is NaN or infinite, which would be rounded to some number.
    """
    for name, weight in checkpoint.model.named_parameters():
        if not bool(weight.isfinite().all()):
            raise CheckpointError(f"{name} has a weight that is not finite")
    model = copy.deepcopy(checkpoint.model).eval().requires_grad_(False)
    _replace_in(model)
    return replace(checkpoint, model=model)


def _replace_in(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            if child.out_features >= MIN_COLUMNS:
                setattr(module, name, QuantisedLinear(child))
        elif isinstance(child, TiedEmbedding):
            setattr(module, name, QuantisedEmbedding(child))
        # Patches are projected once in a request, and pixels keep their precision.
        elif not isinstance(child, PatchEmbedding):
            _replace_in(child)
