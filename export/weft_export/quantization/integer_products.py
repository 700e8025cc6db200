"""What of a model is in 8-bit integers: products of many columns, output projections included, and keys and values.

What is hard to round is smoothed before, and products that stay hard stay float32: see `effects.py` and `choice.py`.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.held_out import Example
from weft_export.checkpoints.sharing import sharing
from weft_export.errors import CheckpointError
from weft_export.families.writer import RECURRENT, Writer, pairs
from weft_export.layers.cache_rounding import CacheRounding
from weft_export.layers.embeddings import TiedEmbedding
from weft_export.layers.quantized_linear import QuantisedEmbedding, QuantisedLinear
from weft_export.layers.style import RmsNorm
from weft_export.quantization.calibration import cache_ranges
from weft_export.quantization.choice import Choice, choose
from weft_export.quantization.effects import effects_of
from weft_export.quantization.observers import descends, is_product
from weft_export.quantization.requests import sensible_requests
from weft_export.quantization.smoothing_sites import own_sites, sites_of
from weft_proto.tasks import TASKS

NUM_REQUESTS = 8
"""How many requests the effects of rounding are measured on."""


def quantised(checkpoint: Checkpoint, examples: Sequence[Example] = ()) -> Checkpoint:
    """Return a checkpoint whose products, keys and values are 8-bit integers. It shares the rest, in float32.

    examples are held-out ones. Without any, texts of our own or random requests stand for them.

    Raises:
        CheckpointError: a weight is NaN or infinite, which would be rounded to some number.
    """
    check_finite(checkpoint.model)
    ranges = ranges_of(checkpoint, examples)
    choice = choice_of(checkpoint, examples)
    model = sharing(checkpoint.model)
    smooth(model, choice)
    _round_in(model, "", choice)
    round_caches(model, ranges)
    return replace(
        checkpoint, model=model, rounding=choice.report(), multiplied=choice.multiplied, divided=choice.divided
    )


def check_finite(model: nn.Module) -> None:
    """Raise CheckpointError if a weight is NaN or infinite."""
    for name, weight in model.named_parameters():
        if not bool(weight.isfinite().all()):
            raise CheckpointError(f"{name} has a weight that is not finite")


def choice_of(checkpoint: Checkpoint, examples: Sequence[Example]) -> Choice:
    """Measure what rounding would do to the answers, and choose what is smoothed and what stays float32.

    What writes has no products that divide by themselves: Whisper base's logits then differ by 0.152 of their spread,
    which is more than parity allows, and by less where such products stay float32.
    """
    own = [] if TASKS[checkpoint.task].writes_text else own_sites(checkpoint.model)
    sites = [*sites_of(checkpoint.model), *own]
    effects = effects_of(checkpoint, sensible_requests(checkpoint, examples, NUM_REQUESTS), sites)
    sizes = {path: checkpoint.model.get_parameter(f"{path}.weight").numel() for path in effects.plain}
    return choose(effects, sites, sizes)


def ranges_of(checkpoint: Checkpoint, examples: Sequence[Example]) -> Sequence[Tensor] | None:
    """Return what keys and values are, or None for a model without a cache of them.

    Raises:
        CheckpointError: one is not finite: the model overflows. So this is asked before answers are sampled.
    """
    model = checkpoint.model
    return cache_ranges(checkpoint, examples) if isinstance(model, Writer) and model.cached_attentions else None


def round_caches(model: nn.Module, ranges: Sequence[Tensor] | None) -> None:
    """Round keys and values of a model by what `ranges_of` the checkpoint says, if it has any."""
    if ranges is None:
        return
    assert isinstance(model, Writer)
    for attention, (keys, values) in zip(model.cached_attentions, pairs(ranges), strict=True):
        attention.rounding = CacheRounding(keys, values)
    model.states = tuple(replace(state, rounded=state.kind != RECURRENT) for state in model.states)


def smooth(model: nn.Module, choice: Choice) -> None:
    """Put norms and products with the chosen factors into a model.

    Its parameters are shared, so new ones take their place. A tied embedding is left to its rounding.
    """
    for path, factors in choice.divided.items():
        maker = model.get_submodule(path)
        if isinstance(maker, RmsNorm):
            maker.weight = _fixed(maker.weight / factors)
        elif isinstance(maker, nn.LayerNorm):
            maker.weight = _fixed(maker.weight / factors)
            if maker.bias is not None:
                maker.bias = _fixed(maker.bias / factors)
        elif isinstance(maker, nn.Linear):
            maker.weight = _fixed(maker.weight / factors[:, None])
            if maker.bias is not None:
                maker.bias = _fixed(maker.bias / factors)
    for path, factors in choice.multiplied.items():
        reader = model.get_submodule(path)
        if isinstance(reader, nn.Linear):
            reader.weight = _fixed(reader.weight * factors)


def _fixed(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


def _round_in(module: nn.Module, prefix: str, choice: Choice) -> None:
    for name, child in module.named_children():
        path = prefix + name
        if not is_product(child):
            if descends(child):
                _round_in(child, f"{path}.", choice)
        elif path not in choice.floats:
            setattr(module, name, _rounded(child, path, choice))


def _rounded(product: nn.Linear | TiedEmbedding, path: str, choice: Choice) -> nn.Module:
    """Round a product. A linear one has the factors already that it need not divide by itself."""
    if isinstance(product, nn.Linear):
        return QuantisedLinear(product, choice.dividing.get(path))
    return QuantisedEmbedding(product, choice.multiplied.get(path))
