"""The weights' file: what is read, and what is said of the files that others write."""

import json

import pytest
import safetensors.torch
import torch
from tiny import CHECKPOINTS, save_tiny

from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.errors import CheckpointError


def edit_weights(directory, change):
    """Rewrite model.safetensors through a function."""
    tensors = safetensors.torch.load_file(directory / "model.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, directory / "model.safetensors")


def test_bfloat16_weights_load_as_float32(tmp_path):
    """Each bfloat16 number is a float32 number too, and loads as that."""
    checkpoint = CHECKPOINTS["tiny-gpt"]()
    save_checkpoint(tmp_path, checkpoint, torch.bfloat16)
    expected = {name: tensor.bfloat16().float() for name, tensor in checkpoint.model.state_dict().items()}
    actual = load_checkpoint(tmp_path).model.state_dict()

    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)


def test_a_redundant_output_projection_is_said_to_be_one(tmp_path):
    """A tied model has no lm_head.weight; who kept one is told to leave it out."""
    directory = save_tiny("tiny-gpt", tmp_path)
    edit_weights(directory, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(2, 2)}))

    with pytest.raises(CheckpointError, match=r"lm_head\.weight is unexpected.*embedding is the output projection"):
        load_checkpoint(directory)


def test_names_of_another_make_are_said_together(tmp_path):
    """A file with names of its own: one that is missing, how many more, and one of those that are there instead."""
    directory = save_tiny("tiny-gpt", tmp_path)
    names = [f"transformer.h.{index}.weight" for index in range(4)]
    safetensors.torch.save_file({name: torch.zeros(2) for name in names}, directory / "model.safetensors")

    complaint = (
        r"embedding\.positions\.weight \(and \d+ more\) is missing; the file has transformer\.h\.0\.weight \(and 3"
    )
    with pytest.raises(CheckpointError, match=complaint):
        load_checkpoint(directory)


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ("model-00001-of-00002.safetensors", "weights in several files, or under another name, are not read; put all"),
        ("model.safetensors.index.json", "weights in several files, or under another name, are not read; put all"),
        ("pytorch_model.bin", r"a pickle is not read, because it may run code; write torch.load\('pytorch_model.bin'"),
        ("model.pt", r"a pickle is not read, because it may run code; write torch.load\('model.pt'"),
        (None, "there is no such file"),
    ],
)
def test_weights_of_other_kinds_are_named(other, complaint, tmp_path):
    """Shards and pickles are said to be what they are, and what to do."""
    directory = save_tiny("tiny-gpt", tmp_path)
    (directory / "model.safetensors").unlink()
    if other:
        (directory / other).touch()

    with pytest.raises(CheckpointError, match=complaint):
        load_checkpoint(directory)


def test_a_hugging_face_directory_is_said_to_be_one(tmp_path):
    """Not "unknown family 'None'": what it is, and who reads it."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))

    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path)
    assert "is a Hugging Face directory (model_type 'llama')" in str(caught.value)
    assert "None" not in str(caught.value)
