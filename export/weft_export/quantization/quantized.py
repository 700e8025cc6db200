"""From a checkpoint in float32 to one of a precision that rounds."""

from collections.abc import Sequence
from dataclasses import replace

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.held_out import Example
from weft_export.checkpoints.sharing import sharing
from weft_export.quantization.in_blocks import rounded_in_blocks
from weft_export.quantization.integer_products import quantised
from weft_proto.bundle_rules import ROUNDED
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2


def quantized(
    checkpoint: Checkpoint, precision: bundle_pb2.Precision.ValueType, examples: Sequence[Example] = ()
) -> Checkpoint:
    """Return a checkpoint as a precision has it: itself, where nothing is rounded.

    examples are held-out ones. Without any, texts of our own or random requests stand for them.

    Raises:
        CheckpointError: a weight cannot be rounded.
    """
    if precision not in ROUNDED:
        return checkpoint
    if TASKS[checkpoint.task].matches:
        return _together(checkpoint, [quantized(tower, precision) for tower in checkpoint.towers])
    if precision == bundle_pb2.PRECISION_INT8:
        return quantised(checkpoint, examples)
    return rounded_in_blocks(checkpoint, precision, examples)


def _together(checkpoint: Checkpoint, towers: Sequence[Checkpoint]) -> Checkpoint:
    """Return a checkpoint that matches, of its rounded towers."""
    model = sharing(checkpoint.model)
    report = bundle_pb2.Rounding()
    for name, tower in zip(("pictures", "texts"), towers, strict=True):
        setattr(model, name, tower.model)
        assert tower.rounding is not None
        report.num_products += tower.rounding.num_products
        report.effect += tower.rounding.effect
        report.plain_effect += tower.rounding.plain_effect
        for product in tower.rounding.products:
            added = report.products.add()
            added.CopyFrom(product)
            added.name = f"{name}.{product.name}"
    return replace(checkpoint, model=model, rounding=report)
