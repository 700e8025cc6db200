"""What of a model is rounded in blocks: products of many columns, output projections included; and keys and values."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.held_out import Example
from weft_export.checkpoints.sharing import sharing
from weft_export.errors import CheckpointError
from weft_export.layers.block_linear import MAX_WEIGHT
from weft_export.layers.embeddings import TiedEmbedding
from weft_export.quantization.block_kinds import ladder_of, rounded
from weft_export.quantization.choice import choose_kinds, report_of
from weft_export.quantization.effects import block_effects
from weft_export.quantization.integer_products import NUM_REQUESTS, check_finite, ranges_of, round_caches
from weft_export.quantization.observers import descends, is_product
from weft_export.quantization.requests import sensible_requests
from weft_proto.v1 import bundle_pb2


def rounded_in_blocks(
    checkpoint: Checkpoint, precision: bundle_pb2.Precision.ValueType, examples: Sequence[Example] = ()
) -> Checkpoint:
    """Return a checkpoint whose products have weights in blocks, and whose keys and values are 8-bit integers.

    It shares the rest, in float32. examples are held-out ones. Without any, texts of our own or random requests stand
    for them.

    Raises:
        CheckpointError: a weight is not finite, or larger than MAX_WEIGHT.
    """
    check_finite(checkpoint.model)
    products = products_of(checkpoint.model)
    for path, product in products.items():
        if float(product.weight.detach().abs().max()) > MAX_WEIGHT:
            raise CheckpointError(f"{path}.weight has a weight of more than {MAX_WEIGHT:,}, which no scale fits")
    ladders = {path: ladder_of(product, precision) for path, product in products.items()}
    ranges = ranges_of(checkpoint, examples)
    effects = block_effects(checkpoint, sensible_requests(checkpoint, examples, NUM_REQUESTS), ladders)
    chosen = choose_kinds(effects, ladders, {path: product.weight.numel() for path, product in products.items()})
    model = sharing(checkpoint.model)
    for path, kind in chosen.items():
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, rounded(products[path], kind))
    round_caches(model, ranges)
    return replace(checkpoint, model=model, rounding=report_of(chosen, effects, ladders))


def products_of(model: nn.Module) -> dict[str, nn.Linear | TiedEmbedding]:
    """Return what is rounded of a model, by path."""
    return dict(_products(model, ""))


def _products(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Linear | TiedEmbedding]]:
    for name, child in module.named_children():
        if is_product(child):
            yield path + name, child
        elif descends(child):
            yield from _products(child, f"{path}{name}.")
