"""Reads an adapter in PEFT's format: adapter_config.json, and adapter_model.safetensors or adapter_model.bin.

What is more than LoRA is refused.
Of a checkpoint of ours the names are those of its modules. PEFT itself writes them so when it adapts such a model.
"""

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft_export.adapters.adapter_config import CONFIG, MERGE, check_saved, check_targeted, of_module, read_config
from weft_export.checkpoints.weights import DATA_TYPES
from weft_export.converters.tensors import Readers, tensors_of
from weft_export.errors import CheckpointError

WEIGHTS, PICKLE = "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
# What PEFT puts around a module that has an adapter.
_WRAPPED = ".base_layer."
_NAME = re.compile(r"(?P<path>.+)\.lora_(?P<part>[AB])(\.default)?\.weight")


@dataclass(frozen=True)
class Change:
    """What an adapter adds to one product: scale * B A, with A [rank, inputs] and B [outputs, rank]."""

    a: Tensor
    b: Tensor
    scale: float

    @property
    def rank(self) -> int:
        """Of the product."""
        return self.a.shape[0]

    def matrix(self) -> Tensor:
        """Return it as [outputs, inputs], float64."""
        return self.scale * (self.b.double() @ self.a.double())


@dataclass(frozen=True)
class Adapter:
    """What an adapter's directory holds.

    weights: the file.
    changes: what is added to the weights of modules, by their paths, in the order of names.
    whole: by name the parameters that were saved as they are: heads, biases, embeddings.
    """

    weights: Path
    changes: Mapping[str, Change]
    whole: Mapping[str, Tensor]


def read_adapter(directory: Path) -> Adapter:
    """Read an adapter's directory.

    Raises:
        CheckpointError: a file is missing or broken, or it is more than LoRA.
    """
    config = read_config(directory)
    path = directory / WEIGHTS
    # As PEFT, which prefers safetensors.
    if not path.exists() and (directory / PICKLE).exists():
        path = directory / PICKLE
    if not path.exists():
        raise CheckpointError(f"{directory} has no weights: neither {WEIGHTS} nor {PICKLE}")
    tensors = tensors_of(path)
    parts: dict[str, dict[str, str]] = {}
    whole = {}
    for name, (entry, read) in sorted(tensors.items()):
        if entry.data_type not in DATA_TYPES:
            raise CheckpointError(f"{path}: {name} is of the type {entry.data_type}; floats of 16 or 32 bits are read")
        found = _NAME.fullmatch(name)
        if found is None:
            whole[_whole(path, name)] = read()
            continue
        if len(entry.shape) != 2:
            raise CheckpointError(f"{path}: {name} has {len(entry.shape)} axes; only products of matrices are adapted")
        module, part = found["path"].removeprefix(PREFIX), found["part"]
        known = parts.setdefault(module, {})
        if part in known:
            raise CheckpointError(f"{path}: {known[part]} and {name} are both lora_{part} of {module}")
        known[part] = name
    if not parts:
        raise CheckpointError(f"{path} has no A and B of LoRA")
    check_saved(config, whole)
    changes = {module: _change(config, path, module, names, tensors) for module, names in parts.items()}
    return Adapter(path, changes, whole)


def _whole(path: Path, name: str) -> str:
    """Return the parameter that a tensor is. Raises CheckpointError if it is none, but another part of an adapter."""
    if "lora_magnitude_vector" in name:
        raise CheckpointError(f"{path}: {name} is DoRA's, which is not supported; {MERGE}")
    if "lora_embedding" in name:
        raise CheckpointError(f"{path}: {name} adapts an embedding, which is not supported; {MERGE}")
    if "lora_" in name and name.endswith(".bias"):
        raise CheckpointError(f"{path}: {name} is a bias, which is not supported")
    if "lora_" in name or "trainable_tokens" in name:
        raise CheckpointError(f"{path}: {name} is no A or B of LoRA, which is not supported; {MERGE}")
    return name.removeprefix(PREFIX).replace(_WRAPPED, ".")


def _change(config: Mapping[str, Any], path: Path, module: str, names: Mapping[str, str], tensors: Readers) -> Change:
    for part in "AB":
        if part not in names:
            raise CheckpointError(f"{path}: {module} has no lora_{part}")
    check_targeted(config, module)
    a, b = (tensors[names[part]][1]().float() for part in "AB")
    rank = of_module(config, "rank_pattern", module, config["r"])
    if not (isinstance(rank, int) and a.shape[0] == b.shape[1] == rank >= 1):
        shapes = f"A {list(a.shape)} and B {list(b.shape)}"
        raise CheckpointError(
            f"{path}: {module} has {shapes}, and by r and rank_pattern of {CONFIG} its rank is {rank}"
        )
    for part, matrix in (("A", a), ("B", b)):
        if not bool(matrix.isfinite().all()):
            raise CheckpointError(f"{path}: {module} has a number in lora_{part} that is not finite")
    alpha = of_module(config, "alpha_pattern", module, config["lora_alpha"])
    if not isinstance(alpha, int | float) or not abs(alpha) <= sys.float_info.max:
        raise CheckpointError(
            f"{CONFIG}: by lora_alpha and alpha_pattern, alpha of {module} is {alpha!r:.60}, which is no number"
        )
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return Change(a, b, scale)


def changed(tensor: Tensor, change: Change, name: str, *, turned: bool = False) -> Tensor:
    """Return a weight with what an adapter adds to it, float32. turned: it is stored as [inputs, outputs].

    Raises:
        CheckpointError: the adapter is for a weight of another shape, or the sum is larger than float32 holds.
    """
    matrix = change.matrix().t() if turned else change.matrix()
    if matrix.shape != tensor.shape:
        shapes = f"{list(matrix.shape)}, and {name} is {list(tensor.shape)}"
        raise CheckpointError(f"the adapter is for a base of other sizes: it adds {shapes}")
    merged = (tensor.double() + matrix).to(torch.float32)
    if not bool(merged.isfinite().all()):
        raise CheckpointError(f"by lora_alpha and its tensors, the adapter adds more to {name} than float32 holds")
    return merged
