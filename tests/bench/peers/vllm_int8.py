"""The Hugging Face folder of a generator with int8 weights, in the format of compressed-tensors that vLLM reads."""

import json
import shutil

import safetensors.torch
import torch

# A scale for each row of a weight, and one for each token's activations as they come; the embedding stays as it is.
_WEIGHTS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
_ACTIVATIONS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
_QUANTISATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": _WEIGHTS, "input_activations": _ACTIVATIONS},
    },
}


def int8_folder(source):
    """The folder vllm-int8 beside `source`, written from it unless it is there."""
    directory, fresh = source.with_name("vllm-int8"), source.with_name("vllm-int8.fresh")
    if directory.is_dir():
        return directory
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(source, fresh)
    tensors = {}
    for name, tensor in safetensors.torch.load_file(source / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            tensors[name] = tensor
            continue
        scale = tensor.abs().amax(dim=1, keepdim=True) / 127
        tensors[name] = (tensor / scale).round().to(torch.int8)
        tensors[f"{name}_scale"] = scale
    safetensors.torch.save_file(tensors, fresh / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text()) | {"quantization_config": _QUANTISATION}
    (fresh / "config.json").write_text(json.dumps(config, indent=2))
    fresh.rename(directory)
    return directory
