"""Reads an adapter in PEFT's format: adapter_config.json and adapter_model.safetensors.

What is more than LoRA is refused.
Of a checkpoint of ours the names are those of its modules. PEFT itself writes them so when it adapts such a model.
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft_export.checkpoints.weights import DATA_TYPES, open_weights, read_header
from weft_export.converters.text.json_file import read_object
from weft_export.errors import CheckpointError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
_NAME = re.compile(r"(?P<path>.+)\.lora_(?P<part>[AB])(\.default)?\.weight")
# What of its config changes nothing of an answer.
_HARMLESS = frozenset(
    (
        "auto_mapping",
        "base_model_name_or_path",
        "corda_config",
        "eva_config",
        "exclude_modules",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",
        "loftq_config",
        "lora_dropout",
        "lora_ga_config",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "revision",
        "runtime_config",
        "target_modules",
        "task_type",
        "velora_config",
    )
)
_READ = frozenset(
    (
        "peft_type",
        "r",
        "lora_alpha",
        "use_rslora",
        "rank_pattern",
        "alpha_pattern",
        "fan_in_fan_out",
        "init_lora_weights",
    )
)
# What is more than LoRA, in words of its own. All else that is set and not known is named too.
_BEYOND = {
    "use_dora": "DoRA is not supported; only LoRA is",
    "modules_to_save": "modules that were saved whole are not supported",
    "bias": "trained biases are not supported",
}
# Those that leave the weights of the base as they are.
_INITIAL = (None, True, False, "gaussian", "eva", "orthogonal")


@dataclass(frozen=True)
class Change:
    """What an adapter adds to one weight: scale * B A, with A [rank, inputs] and B [outputs, rank].

    turned: the weight is stored as [inputs, outputs].
    """

    a: Tensor
    b: Tensor
    scale: float
    turned: bool

    @property
    def rank(self) -> int:
        """Of the product."""
        return self.a.shape[0]

    def matrix(self) -> Tensor:
        """Return it as the weight is stored, float64."""
        product = self.scale * (self.b.double() @ self.a.double())
        return product.t() if self.turned else product


def read_adapter(directory: Path) -> dict[str, Change]:
    """Return the changes of an adapter by the path of the module whose weight it is, in the order of names.

    Raises:
        CheckpointError: a file is missing or broken, or it is more than LoRA.
    """
    config = _read_config(directory / CONFIG)
    path = directory / WEIGHTS
    header = read_header(path)
    parts: dict[str, dict[str, str]] = {}
    for name, entry in sorted(header.items()):
        module, part = _split(path, name)
        if len(entry.shape) != 2:
            raise CheckpointError(f"{path}: {name} has {len(entry.shape)} axes; only products of matrices are adapted")
        if entry.data_type not in DATA_TYPES:
            raise CheckpointError(f"{path}: {name} is of the type {entry.data_type}; floats of 16 or 32 bits are read")
        known = parts.setdefault(module, {})
        if part in known:
            raise CheckpointError(f"{path}: {known[part]} and {name} are both lora_{part} of {module}")
        known[part] = name
    if not parts:
        raise CheckpointError(f"{path} has no tensors")
    with open_weights(path) as file:
        return {module: _change(config, path, module, names, file) for module, names in parts.items()}


def _split(path: Path, name: str) -> tuple[str, str]:
    """Return the module that a tensor is for, and whether it is A or B."""
    found = _NAME.fullmatch(name)
    if found:
        return found["path"].removeprefix(PREFIX), found["part"]
    if "lora_magnitude_vector" in name:
        raise CheckpointError(f"{path}: {name} is DoRA's, which is not supported")
    if "lora_embedding" in name:
        raise CheckpointError(f"{path}: {name} adapts an embedding, which is not supported")
    if "lora_" in name and name.endswith(".bias"):
        raise CheckpointError(f"{path}: {name} is a bias, which is not supported")
    raise CheckpointError(f"{path}: {name} is no A or B of LoRA; a module that was saved whole is not supported")


def _change(config: Mapping[str, Any], path: Path, module: str, names: Mapping[str, str], file: Any) -> Change:
    for part in "AB":
        if part not in names:
            raise CheckpointError(f"{path}: {module} has no lora_{part}")
    a, b = (file.get_tensor(names[part]).float() for part in "AB")
    rank = _of_module(config, "rank_pattern", module, config["r"])
    if not (isinstance(rank, int) and a.shape[0] == b.shape[1] == rank >= 1):
        shapes = f"A {list(a.shape)} and B {list(b.shape)}"
        raise CheckpointError(f"{path}: {module} has {shapes}, and {CONFIG} says a rank of {rank}")
    for part, matrix in (("A", a), ("B", b)):
        if not bool(matrix.isfinite().all()):
            raise CheckpointError(f"{path}: {module} has a number in lora_{part} that is not finite")
    alpha = _of_module(config, "alpha_pattern", module, config["lora_alpha"])
    if not isinstance(alpha, int | float) or not abs(alpha) <= sys.float_info.max:
        raise CheckpointError(f"{CONFIG}: lora_alpha of {module} must be a number, not {alpha!r:.60}")
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return Change(a, b, scale, bool(config.get("fan_in_fan_out")))


def _of_module(config: Mapping[str, Any], field: str, module: str, default: Any) -> Any:
    """Return what a pattern says of a module, as PEFT reads it: the first that matches the end of its path."""
    for pattern, value in (config.get(field) or {}).items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        except re.error as error:
            raise CheckpointError(f"{CONFIG}: {field} has {pattern!r:.60}, which is no pattern: {error}") from error
    return default


def _read_config(path: Path) -> dict[str, Any]:
    config = read_object(path)
    for sentence in _complaints(config):
        raise CheckpointError(f"{path}: {sentence}")
    return config


def _complaints(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a config, or beyond LoRA."""
    if config.get("peft_type") != "LORA":
        yield f"peft_type must be 'LORA', not {config.get('peft_type')!r:.60}"
    for name, value in config.items():
        if value and name not in _HARMLESS | _READ and (name, value) != ("bias", "none"):
            yield f"{name} is {value!r:.60}: {_BEYOND.get(name, 'this is not supported')}"
    if not any(config.get("init_lora_weights") == each for each in _INITIAL):
        yield f"init_lora_weights {config['init_lora_weights']!r:.60} changes the base's own weights: not supported"
    for name in ("r", "lora_alpha"):
        if not isinstance(config.get(name), int | float) or isinstance(config.get(name), bool):
            yield f"{name} must be a number, not {config.get(name)!r:.60}"
    for name in ("rank_pattern", "alpha_pattern"):
        if not isinstance(config.get(name) or {}, dict):
            yield f"{name} must be an object, not {config[name]!r:.60}"


def changed(tensor: Tensor, change: Change, name: str) -> Tensor:
    """Return a weight with what an adapter adds to it, float32.

    Raises:
        CheckpointError: the adapter is for a weight of another shape, or the sum is larger than float32 holds.
    """
    matrix = change.matrix()
    if matrix.shape != tensor.shape:
        shapes = f"{list(matrix.shape)}, and {name} is {list(tensor.shape)}"
        raise CheckpointError(f"the adapter is for a base of other sizes: it adds {shapes}")
    merged = (tensor.double() + matrix).to(torch.float32)
    if not bool(merged.isfinite().all()):
        raise CheckpointError(f"the adapter adds so much to {name} that float32 does not hold it")
    return merged
