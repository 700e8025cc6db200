"""How far products move the answers when their weights are rounded in blocks: `effects.py` has the equations."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.sharing import sharing
from weft_export.layers.block_linear import in_blocks
from weft_export.quantization.block_kinds import BlockKind, rounded_inputs, rounded_weights
from weft_export.quantization.effects import cut, there_and_back
from weft_export.quantization.observers import ObservedProduct, watch
from weft_export.quantization.requests import Request
from weft_proto.tasks import TASKS

# Of the errors of so many weights in a row, the mean square is kept. So they take little memory.
_SIZE = 32


def block_effects(
    checkpoint: Checkpoint, requests: Sequence[Request], ladders: Mapping[str, Sequence[BlockKind]]
) -> dict[tuple[str, BlockKind], float]:
    """Return by how many nats an answer, or a token of it, moves when one product is rounded in one way.

    ladders are the ways to try of all products, by path. Of the requests there is one at least.
    """
    model = sharing(checkpoint.model)
    products = watch(model)
    tried = [(path, kind) for path, ladder in ladders.items() for kind in ladder]
    errors = {(path, kind): _mean_squares(products[path].weight, kind) for path, kind in tried}
    sums = dict.fromkeys(tried, 0.0)
    num_answers = 0
    generator = torch.Generator().manual_seed(2)
    for request in map(cut, requests):
        num_answers += there_and_back(model, request, generator, TASKS[checkpoint.task])
        for path, kind in tried:
            sums[path, kind] += _squares(products[path], kind, errors[path, kind])
        for product in products.values():
            product.forget()
    # Where a gradient overflows nothing is known, and the quality gate has to judge.
    return {key: total / 2 / num_answers if math.isfinite(total) else 0.0 for key, total in sums.items()}


def _mean_squares(weight: Tensor, kind: BlockKind) -> Tensor:
    weight = weight.detach()
    return in_blocks((rounded_weights(weight, kind) - weight).square(), _SIZE).mean(dim=-1)


def _squares(product: ObservedProduct, kind: BlockKind, errors: Tensor) -> float:
    """Return the sum over rows of (g e)^2, e being the error of the row and, apart from that, of the weights."""
    if not product.read_gradient:
        return 0.0
    rows = torch.cat(product.read)
    total = _moved(product.read_gradient, rounded_inputs(rows, kind) - rows)
    written = torch.cat(product.written_gradient).square() @ errors
    total = total + (written * in_blocks(rows.square(), _SIZE).sum(dim=-1)).sum()
    if product.looked_up:
        vectors = torch.cat(product.looked_up)
        total = total + _moved(product.looked_up_gradient, rounded_weights(vectors, kind) - vectors)
    return float(total)


def _moved(gradients: Sequence[Tensor], error: Tensor) -> Tensor:
    return (torch.cat(tuple(gradients)) * error).sum(dim=1).square().sum()
