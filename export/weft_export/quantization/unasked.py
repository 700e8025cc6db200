"""Experts that no request asked while rounding was measured: what rounding costs them is not known."""

from collections.abc import Sequence
from typing import Any

import torch

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.held_out import Example
from weft_export.layers.experts import Experts
from weft_export.quantization.effects import cut, logits_of
from weft_export.quantization.integer_products import NUM_REQUESTS
from weft_export.quantization.requests import sensible_requests


def note_of_experts(checkpoint: Checkpoint, examples: Sequence[Example]) -> str | None:
    """Return a sentence that says how many there are, for who exports a model; None without any.

    examples are those that rounding is measured on.
    """
    experts = [expert for layer in checkpoint.model.modules() if isinstance(layer, Experts) for expert in layer.experts]
    if not experts:
        return None
    asked = set()

    def read(expert: torch.nn.Module, given: tuple[Any, ...]) -> None:
        if len(given[0]):
            asked.add(expert)

    hooks = [expert.register_forward_pre_hook(read) for expert in experts]
    try:
        with torch.inference_mode():
            for tower in checkpoint.towers:
                for request in sensible_requests(tower, examples if tower is checkpoint else (), NUM_REQUESTS):
                    logits_of(tower.model, cut(request))
    finally:
        for hook in hooks:
            hook.remove()
    if len(asked) == len(experts):
        return None
    return (
        f"{len(experts) - len(asked)} of {len(experts)} experts read no token of what rounding was measured on: what it"
        " costs them is not known"
    )
