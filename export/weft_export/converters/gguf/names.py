"""The names of GGUF files, of which several may be the parts of one, and of the classes that they hold."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft_export.errors import CheckpointError

MAX_PARTS = 2**10
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


def title_of(path: Path) -> str:
    """Return what a file is called, without its number among several."""
    found = _PART.fullmatch(path.name)
    return path.stem if found is None else found[1]


def parts_of(path: Path) -> list[Path]:
    """Return a file, or all its parts where it is one of several: model-00001-of-00003.gguf and so on.

    Raises:
        CheckpointError: one of them is missing.
    """
    found = _PART.fullmatch(path.name)
    if found is None:
        return [path]
    count = int(found[3])
    if not 1 <= count <= MAX_PARTS:
        raise CheckpointError(f"{path} is named as one of {count} parts; 1 to {MAX_PARTS} are read")
    paths = [path.with_name(f"{found[1]}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    for part in paths:
        if not part.exists():
            raise CheckpointError(f"{part} is missing: {path.name} is one of {count} parts")
    return paths


_CLASSES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma2": ("gemma2", "Gemma2ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
    "phi3": ("phi3", "Phi3ForCausalLM"),
    "gpt2": ("gpt2", "GPT2LMHeadModel"),
    "starcoder2": ("starcoder2", "Starcoder2ForCausalLM"),
}
"""By general.architecture: the model_type and the class that config.json of the same model says."""


def class_of(values: Mapping[str, Any], path: Path) -> tuple[str, str]:
    """Return the model_type and the class of what a file holds. Raises CheckpointError where it is not read here."""
    kind = values.get("general.type", "model")
    if kind != "model":
        raise CheckpointError(f"{path} holds no model, but what it calls {kind!r:.40}")
    name = values.get("general.architecture")
    if not isinstance(name, str) or name not in _CLASSES:
        known = ", ".join(sorted(_CLASSES))
        raise CheckpointError(f"{path}: GGUF files of the architecture {name!r:.40} are not read; these are: {known}")
    return _CLASSES[name]
