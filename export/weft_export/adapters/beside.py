"""A base in torch as its bundle has it, with an adapter beside its rounded products: what ONNX Runtime is held to."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.held_out import Example
from weft_export.checkpoints.sharing import sharing
from weft_export.errors import CheckpointError
from weft_export.layers.adapted_linear import FixedAdapter
from weft_export.quantization.quantized import quantized
from weft_export.verification.session import Pairs
from weft_proto.v1 import bundle_pb2


def rounded_base(
    checkpoint: Checkpoint, manifest: bundle_pb2.BundleManifest, examples: Sequence[Example]
) -> Checkpoint:
    """Round a base as its bundle has it. At fp32 it is itself.

    Raises:
        CheckpointError: rounding chose otherwise than when the bundle was made.
    """
    told = manifest.rounding.products
    base = quantized(replace(checkpoint, max_block_size=_largest(told)), manifest.precision, examples)
    chosen = [] if base.rounding is None else base.rounding.products
    # An older bundle tells no sizes of blocks.
    is_same_size = all(said.block_size in {0, own.block_size} for said, own in zip(told, chosen, strict=False))
    if list(map(_choice, chosen)) != list(map(_choice, told)) or not is_same_size:
        raise CheckpointError(
            "the bundle was rounded otherwise: its held-out examples were others, or another version exported it."
            " Give its examples with --held-out, or export it again"
        )
    return base


def _largest(products: Sequence[bundle_pb2.RoundedProduct]) -> int:
    """Return how large blocks were to be at most. Those of the fewest bits say it: others keep their smallest."""
    fewest = min((product.bits for product in products), default=0)
    return max((product.block_size for product in products if product.bits == fewest), default=0)


def _choice(product: bundle_pb2.RoundedProduct) -> tuple[object, ...]:
    return product.name, product.bits, product.is_float, product.strength


def smoothed(pairs: Pairs, base: Checkpoint) -> Pairs:
    """Return A and B as they add to products whose inputs and outputs were divided or multiplied by factors."""
    changed = dict(pairs)
    for name, factors in base.multiplied.items():
        if name in changed:
            a, b = changed[name]
            changed[name] = a * factors.numpy()[:, None], b
    for name, factors in base.divided.items():
        if name in changed:
            a, b = changed[name]
            changed[name] = a, b / factors.numpy()
    return changed


def beside(base: Checkpoint, pairs: Pairs) -> Checkpoint:
    """Return a base all of whose rows have one adapter."""
    model = sharing(base.model)
    for name, pair in pairs.items():
        path, _, own = name.rpartition(".")
        parent: Any = model.get_submodule(path)
        setattr(parent, own, FixedAdapter(getattr(parent, own), *map(torch.from_numpy, pair)))
    return replace(base, model=model)
