"""Where several files have weights, ours are those that transformers takes, or the directory is refused."""

import json

import pytest
import safetensors.torch
import torch
from adapted import adapted
from decoder_kinds import DECODERS
from hf_models import converted, furthest, made
from transformers import AutoModelForCausalLM

from weft_export.errors import CheckpointError

LLAMA = next(kind for kind in DECODERS if kind.name == "llama")
IDS = torch.tensor([[3, 4, 5, 6]])


def theirs(directory):
    """The logits of what transformers loads of a directory."""
    with torch.inference_mode():
        return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()(IDS).logits[0]


def others_of(tensors):
    """Tensors of the same names and shapes, with other numbers."""
    return {name: 1.5 * tensor for name, tensor in tensors.items()}


def safe(directory, name, tensors):
    """Keep tensors in one file of safetensors."""
    safetensors.torch.save_file({key: tensor.clone() for key, tensor in tensors.items()}, directory / name)


def in_parts(directory, tensors):
    """Keep them in two files of safetensors, with an index."""
    names = sorted(tensors)
    files = {"model-00001-of-00002.safetensors": names[:7], "model-00002-of-00002.safetensors": names[7:]}
    for file, held in files.items():
        safe(directory, file, {name: tensors[name] for name in held})
    index = {"metadata": {}, "weight_map": {name: file for file, held in files.items() for name in held}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


# What lies beside model.safetensors, or in its place, with other numbers.
LAYOUTS = {
    "one file, and parts": in_parts,
    "one file, and a pickle": lambda directory, other: torch.save(other, directory / "pytorch_model.bin"),
    "one file, and a variant": lambda directory, other: safe(directory, "model.fp16.safetensors", other),
    "one file, and its maker's": lambda directory, other: safe(directory, "consolidated.safetensors", other),
    "parts, and a pickle": lambda directory, other: (
        in_parts(directory, safetensors.torch.load_file(directory / "model.safetensors")),
        (directory / "model.safetensors").unlink(),
        torch.save(other, directory / "pytorch_model.bin"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("lay", LAYOUTS.values(), ids=list(LAYOUTS))
def test_of_several_files_that_one_is_read_which_transformers_reads(lay, tmp_path):
    """One file of safetensors goes before parts, and both before pickles. Files of other names are not looked at."""
    model = made(LLAMA, 5, tmp_path)
    lay(tmp_path, others_of(model.state_dict()))
    with torch.inference_mode():
        assert furthest(converted(tmp_path, max_tokens=64).model.decode(IDS)[0], theirs(tmp_path)) < 1e-4


@pytest.mark.parametrize("name", ["model.fp16.safetensors", "consolidated.safetensors", "pytorch_model.fp16.bin"])
def test_weights_of_another_name_alone_are_refused_by_it(name, tmp_path):
    """They are not found by transformers either, unless it is told of a variant."""
    made(LLAMA, 5, tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    with pytest.raises(CheckpointError, match=f"has no weights: .*; {name} is there"):
        converted(tmp_path)


def test_another_file_that_a_config_names_is_refused(tmp_path):
    """By transformers the weights are read from there."""
    made(LLAMA, 5, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"transformers_weights": "other.safetensors"}))
    with pytest.raises(CheckpointError, match="transformers_weights"):
        converted(tmp_path)


def test_an_adapter_among_the_files_of_its_model_is_refused(tmp_path):
    """It is added to the weights by transformers: a model without it would be silently another one."""
    model = made(LLAMA, 5, tmp_path)
    before = theirs(tmp_path)
    adapted(model, tmp_path, target_modules=["q_proj"])
    assert furthest(theirs(tmp_path), before) > 1e-2
    with pytest.raises(CheckpointError, match=r"adapter_config\.json lies among the files of a model"):
        converted(tmp_path)
