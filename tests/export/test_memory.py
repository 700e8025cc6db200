"""How much memory an export takes: weights are mapped and shared, and the command says its peak."""

import re
import subprocess
import sys

import pytest
import torch
from large_gpt import save_large_gpt
from tiny import CHECKPOINTS, save_tiny

from weft_export.checkpoints.directory import load_checkpoint
from weft_export.checkpoints.sharing import sharing
from weft_export.checkpoints.weights import read_weights, write_weights
from weft_export.families.gpt import GptConfig
from weft_export.graphs.graphs import graphs_of
from weft_proto.v1 import bundle_pb2

LARGE = 2**19
"""Numbers in float32 that are mapped, and not copied out of the file."""


def pointers(model):
    """Where the tensors of a model lie."""
    return {tensor.data_ptr() for tensor in model.state_dict().values()}


@pytest.mark.parametrize("name", ["tiny-gpt", "tiny-attention-rnn", "tiny-resnet"])
def test_graphs_hold_no_weights_of_their_own(name):
    """All graphs of a model are over the model's own tensors, and leave it as it was."""
    checkpoint = CHECKPOINTS[name]()
    graphs = graphs_of(checkpoint, bundle_pb2.PRECISION_FP32)

    assert all(pointers(graph.module) <= pointers(checkpoint.model) for graph in graphs)
    assert all(parameter.requires_grad for parameter in checkpoint.model.parameters())


def test_another_precision_leaves_the_model_as_it_is():
    """Graphs in float16 are over a copy of the weights in float16; what is no number of that kind is shared."""
    checkpoint = CHECKPOINTS["tiny-resnet"]()
    narrow = sharing(checkpoint.model, torch.float16)

    for name, tensor in checkpoint.model.state_dict().items():
        other = narrow.state_dict()[name]
        assert (tensor.half().dtype if tensor.is_floating_point() else tensor.dtype) == other.dtype
        assert torch.equal(tensor.to(other.dtype), other)
    assert {torch.float32} == {parameter.dtype for parameter in checkpoint.model.parameters()}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_what_is_no_weight_is_made_when_a_checkpoint_is_loaded(name, tmp_path):
    """A loaded model has every table and every number that the one that was saved had, all in memory."""
    checkpoint = CHECKPOINTS[name]()
    loaded = load_checkpoint(save_tiny(name, tmp_path)).model
    expected = {**dict(checkpoint.model.named_parameters()), **dict(checkpoint.model.named_buffers())}
    actual = {**dict(loaded.named_parameters()), **dict(loaded.named_buffers())}

    assert expected.keys() == actual.keys()
    for tensor_name, tensor in expected.items():
        assert torch.equal(tensor, actual[tensor_name])
        assert tensor.dtype == actual[tensor_name].dtype


def test_a_loaded_model_outlives_its_file(tmp_path):
    """Who writes other weights into a file changes nothing of what was mapped from it."""
    path, expected = tmp_path / "model.safetensors", torch.arange(LARGE, dtype=torch.float32)
    write_weights(path, {"weight": expected}, torch.float32)
    read = read_weights(path, {"weight": expected})["weight"]
    write_weights(path, {"weight": torch.zeros(2)}, torch.float32)

    assert torch.equal(expected, read)
    assert ["model.safetensors"] == [file.name for file in tmp_path.iterdir()]


def test_writing_to_mapped_weights_leaves_the_file_alone(tmp_path):
    """A model that is changed after it was loaded is changed in memory only."""
    path, expected = tmp_path / "model.safetensors", torch.arange(LARGE, dtype=torch.float32)
    write_weights(path, {"weight": expected}, torch.float32)
    read_weights(path, {"weight": expected})["weight"].zero_()

    assert torch.equal(expected, read_weights(path, {"weight": expected})["weight"])


@pytest.mark.long
def test_a_large_model_is_not_copied_for_each_use(tmp_path):
    """Each megabyte of weights adds at most 3.5 to an export's peak memory, and one to its bundle.

    A small model of as many layers says what an export takes whatever the weights are. One run took 2.7 for each, and
    4.9 before weights were shared. `make bench-export` measures a model whose weights count for nearly all.
    """
    peaks, sizes = [], []
    for d_model in (64, 1024):
        config = GptConfig(512, max_tokens=16, d_model=d_model, num_heads=8, d_ff=4 * d_model, num_layers=2)
        checkpoint = tmp_path / f"checkpoint-{d_model}"
        sizes.append(save_large_gpt(checkpoint, config))
        command = [sys.executable, "-m", "weft_export", str(checkpoint), str(tmp_path / f"gpt-{d_model}" / "1")]
        made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peaks.append(int(re.search(r"peak memory (\d+) MB", made)[1]) * 10**6)

    assert 100e6 < sizes[1] < 110e6
    assert peaks[1] - peaks[0] <= 3.5 * (sizes[1] - sizes[0])
    bundle = sum(path.stat().st_size for path in (tmp_path / "gpt-1024" / "1").iterdir())
    assert bundle <= 1.01 * sizes[1]
