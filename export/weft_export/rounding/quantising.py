"""What of a model is in 8-bit integers: products of many columns, output projections included, and keys and values."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.held_out import Example
from weft_export.checkpoints.sharing import sharing
from weft_export.errors import CheckpointError
from weft_export.families.state import pairs
from weft_export.families.writer import Writer
from weft_export.layers.cache_rounding import CacheRounding
from weft_export.layers.embedding import TiedEmbedding
from weft_export.layers.patches import PatchEmbedding
from weft_export.layers.quantised_linear import QuantisedEmbedding, QuantisedLinear
from weft_export.rounding.calibration import cache_ranges

MIN_COLUMNS = 16
"""A product with fewer columns costs less than rounding its rows. For example, a head of few labels has few."""


def quantised(checkpoint: Checkpoint, examples: Sequence[Example] = ()) -> Checkpoint:
    """Return a checkpoint whose products, keys and values are 8-bit integers. It shares the rest, in float32.

    examples are held-out ones, which fix the scales of keys and values together with random requests.

    Raises:
        CheckpointError: a weight is NaN or infinite, which would be rounded to some number.
    """
    for name, weight in checkpoint.model.named_parameters():
        if not bool(weight.isfinite().all()):
            raise CheckpointError(f"{name} has a weight that is not finite")
    model = sharing(checkpoint.model)
    _replace_in(model)
    if isinstance(model, Writer) and model.cached_attentions:
        _round_caches(model, cache_ranges(checkpoint, examples))
    return replace(checkpoint, model=model)


def _round_caches(model: Writer, ranges: Sequence[Tensor]) -> None:
    for attention, (keys, values) in zip(model.cached_attentions, pairs(ranges), strict=True):
        attention.rounding = CacheRounding(keys, values)
    model.states = tuple(replace(state, rounded=True) for state in model.states)


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
