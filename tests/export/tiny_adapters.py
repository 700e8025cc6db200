"""Random adapters in PEFT's format."""

import json

import torch
from safetensors.torch import save_file
from torch import nn

CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none"}


def write_adapter(directory, shapes, rank=2, seed=0, ranks=None, **more):
    """Write a random adapter of modules with weights of [outputs, inputs], and return its directory."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for module, (outputs, inputs) in shapes.items():
        own = (ranks or {}).get(module, rank)
        tensors[f"base_model.model.{module}.lora_A.weight"] = torch.randn(own, inputs, generator=generator) / inputs
        tensors[f"base_model.model.{module}.lora_B.weight"] = torch.randn(outputs, own, generator=generator)
    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "adapter_model.safetensors")
    (directory / "adapter_config.json").write_text(
        json.dumps({**CONFIG, "r": rank, "target_modules": sorted(shapes), **more})
    )
    return directory


def linear_shapes(model, *names):
    """Return by path the shapes of the weights of a model's layers that have one of some names."""
    return {
        path: tuple(module.weight.shape)
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and "layers." in path and path.rpartition(".")[2] in names
    }
