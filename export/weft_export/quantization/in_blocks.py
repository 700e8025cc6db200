"""What of a model is rounded in blocks: products of many columns, output projections included; and keys and values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.held_out import Example
from weft_export.checkpoints.sharing import sharing
from weft_export.choices import COMPENSATED
from weft_export.errors import CheckpointError
from weft_export.families.causal import CausalTransformer
from weft_export.layers.block_linear import MAX_WEIGHT
from weft_export.layers.embeddings import TiedEmbedding
from weft_export.layers.experts import Experts
from weft_export.quantization.block_kinds import BlockKind, Rounded, ladder_of, larger_kinds, rounded
from weft_export.quantization.choice import choose_kinds, enlarged, report_of, room_of
from weft_export.quantization.effects import block_effects, cut, logits_of
from weft_export.quantization.integer_products import NUM_REQUESTS, check_finite, ranges_of, round_caches
from weft_export.quantization.observers import descends, is_product, watch
from weft_export.quantization.requests import sensible_requests, telling_requests
from weft_proto.bundle_rules import HOST_PRECISIONS
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2

MAX_TOKENS = 1024
"""Of so many tokens is kept what products read, for rounding to 4 bits."""


def rounded_in_blocks(
    checkpoint: Checkpoint, precision: bundle_pb2.Precision.ValueType, examples: Sequence[Example] = ()
) -> Checkpoint:
    """Return a checkpoint whose products have weights in blocks, and whose keys and values are 8-bit integers on a CPU.

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
    inputs = inputs_of(checkpoint, examples) if precision in COMPENSATED else {}
    made = {path: rounded(product, ladders[path][0], inputs.get(path)) for path, product in products.items()}
    requests = sensible_requests(checkpoint, examples, NUM_REQUESTS)
    effects = dict(block_effects(checkpoint, requests, ladders, _wide(made), inputs))
    sizes = {path: product.weight.numel() for path, product in products.items()}
    chosen = choose_kinds(effects, ladders, sizes, _tables(checkpoint, products))
    made |= {path: rounded(products[path], kind) for path, kind in chosen.items() if kind is not ladders[path][0]}
    whole = _of_whole_runs(checkpoint)
    for kind in larger_kinds(precision, checkpoint.max_block_size) if room_of(effects, chosen) > 0 else ():
        smallest = [path for path in whole if chosen[path] is ladders[path][0]]
        tried = {path: _in_larger(products[path], made[path], kind, inputs.get(path)) for path in smallest}
        larger = {path: module for path, module in tried.items() if module}
        effects |= block_effects(checkpoint, requests, dict.fromkeys(larger, (kind,)), _wide(larger), inputs)
        taken = enlarged(effects, chosen, dict.fromkeys(larger, kind), sizes)
        chosen |= taken
        made |= {path: larger[path] for path in taken}
    model = sharing(checkpoint.model)
    for path, module in made.items():
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, module)
    if precision in HOST_PRECISIONS:
        round_caches(model, ranges)
    return replace(checkpoint, model=model, rounding=report_of(chosen, effects, ladders))


def inputs_of(checkpoint: Checkpoint, examples: Sequence[Example]) -> dict[str, Tensor]:
    """Return what products read of MAX_TOKENS tokens of what a model is for [rows, width], by path; {} if nobody knows.

    Products that read the same share it.
    """
    model = sharing(checkpoint.model)
    products = watch(model)
    num_tokens = 0
    with torch.no_grad():
        for source, tokens in map(cut, telling_requests(checkpoint, examples)):
            if num_tokens < MAX_TOKENS:
                logits_of(model, (source, tokens))
                num_tokens += len(tokens) or source[0].shape[-1]
    shared: dict[tuple[int, ...], Tensor] = {}
    found = {}
    for path, product in products.items():
        if product.read:
            key = tuple(rows.data_ptr() for rows in product.read)
            found[path] = shared[key] = shared[key] if key in shared else torch.cat(product.read)
    return found


def _in_larger(
    product: nn.Linear | TiedEmbedding, smallest: Rounded, kind: BlockKind, inputs: Tensor | None
) -> Rounded | None:
    """Return a product in larger blocks than its smallest ones.

    None: its rows would be filled up, or its weights were rounded before as the smallest blocks keep them.
    """
    if product.weight.shape[1] % kind.block_size:
        return None
    larger = rounded(product, kind, inputs)
    loses = torch.equal(smallest.wide, product.weight) and not torch.equal(larger.wide, product.weight)
    return None if loses else larger


def _of_whole_runs(checkpoint: Checkpoint) -> list[str]:
    """Return the paths of products that multiply each token of a run, so that a server can make their number even.

    Not so of the projection to logits, which is of ends of prompts, of experts, and of what reads a picture.
    """
    model = checkpoint.model
    if not TASKS[checkpoint.task].takes_prompt or not isinstance(model, CausalTransformer):
        return []
    if model.reads_pieces or model.bidirectional:
        return []
    apart = [name for name, module in model.named_modules() if isinstance(module, Experts)]
    return [
        path
        for path in products_of(model)
        if path.startswith("layers.") and not any(path.startswith(f"{name}.") for name in apart)
    ]


def _wide(made: Mapping[str, Rounded]) -> dict[str, Tensor]:
    return {path: module.wide for path, module in made.items()}


def _tables(checkpoint: Checkpoint, products: Mapping[str, nn.Linear | TiedEmbedding]) -> list[str]:
    """Return the paths of products with a row of weights for each token: embeddings, and projections to logits."""
    if checkpoint.text is None:
        return []
    vocab_sizes = {checkpoint.text.source_vocab_size, checkpoint.text.target_vocab_size}
    return [path for path, product in products.items() if len(product.weight) in vocab_sizes]


def products_of(model: nn.Module) -> dict[str, nn.Linear | TiedEmbedding]:
    """Return what is rounded of a model, by path."""
    return dict(_products(model, ""))


def _products(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Linear | TiedEmbedding]]:
    for name, child in module.named_children():
        if is_product(child):
            yield path + name, child
        elif descends(child):
            yield from _products(child, f"{path}{name}.")
