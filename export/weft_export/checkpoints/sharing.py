"""Modules whose weights are not their own: made without memory for them, or copied without copying one."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

Model = TypeVar("Model", bound=nn.Module)


@contextmanager
def without_weights() -> Iterator[None]:
    """Make modules whose parameters lie on meta and are drawn for nothing; their buffers are real.

    What then takes the place of the parameters is given by load_state_dict(assign=True).
    """

    def to_meta(_: nn.Module, __: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        return None if parameter is None else nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    # torch documents that a hook may return what is registered instead, but types it as one that may not.
    hook = register_module_parameter_registration_hook(to_meta)  # type: ignore[arg-type]
    try:
        yield
    finally:
        hook.remove()


def sharing(model: Model, dtype: torch.dtype = torch.float32) -> Model:
    """Return a copy of a model's modules, in eval mode, over its tensors; only those of another data type are copied.

    In float32 are all weights, and what is narrower is meant so.
    Nothing of the copy needs a gradient: attention under a bias that might is traced in a form that does not convert.
    """
    # deepcopy takes what it finds here for the copy of a tensor.
    shared: dict[int, object] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        kept: Tensor = tensor.detach()
        if kept.is_floating_point() and dtype != torch.float32:
            kept = kept.to(dtype)
        shared[id(tensor)] = nn.Parameter(kept, requires_grad=False) if isinstance(tensor, nn.Parameter) else kept
    return copy.deepcopy(model, shared).eval()
