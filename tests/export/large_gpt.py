"""A random GPT of any size as a checkpoint: its weights are drawn into the file, and no module holds them."""

import json
from dataclasses import asdict
from pathlib import Path

import safetensors.torch
import torch
from tiny_parts import END, PAD, word_tokenizer
from torch import Tensor

from weft_export.families.gpt import Gpt, GptConfig


def save_large_gpt(directory: Path, config: GptConfig, dtype: torch.dtype = torch.float32) -> int:
    """Write a checkpoint into a new directory; return the size of its weights' file in bytes."""
    directory.mkdir(parents=True)
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in Gpt(config).state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    weights = {name: _drawn(name, shape, generator).to(dtype) for name, shape in shapes.items()}
    file = directory / "model.safetensors"
    safetensors.torch.save_file(weights, file)
    words = [f"w{index}" for index in range(config.vocab_size - 4)]
    (directory / "tokenizer.json").write_bytes(word_tokenizer(words, ends=False))
    (directory / "config.json").write_text(json.dumps(_described(config)))
    return file.stat().st_size


def _drawn(name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Draw a weight as `randomised` does, lively enough for the golden request to have a clear first token."""
    kind = name.rpartition(".")[2]
    if "bias" in kind:
        return torch.randn(shape, generator=generator) * 0.1
    if len(shape) == 1:
        return torch.ones(shape)
    words = "embedding.tokens" in name
    weight = torch.randn(shape, generator=generator).mul_((0.5 if words else 0.7) * shape[-1] ** -0.5)
    if words:
        weight[:END] = 0
    return weight


def _described(config: GptConfig) -> dict[str, object]:
    return {
        "family": "gpt",
        "description": "A random generator, to measure what a large one costs.",
        "model": asdict(config),
        "text": {
            "source_tokenizer": "tokenizer.json",
            "target_tokenizer": "tokenizer.json",
            "source_vocab_size": config.vocab_size,
            "target_vocab_size": config.vocab_size,
            "end_ids": [END],
            "pad_id": PAD,
            "max_total_tokens": config.max_tokens,
            "max_new_tokens": config.max_tokens - 1,
        },
        "decoding": {"max_new_tokens": 8},
        "golden": {"text": "w1 w2 w3"},
        "attention_layer": 0,
    }
