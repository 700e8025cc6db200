"""What a person should know of a directory is said while there is time to stop, not when all is done."""

import pytest
import torch
from encoder_kinds import CLASSIFIERS
from hf_models import made
from typer.testing import CliRunner

from weft_export.__main__ import export_app

PICKLES = "note: the weights are pickles, read without running code; model.safetensors would be safer to pass on"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A small ALBERT of transformers, whose weights are a pickle."""
    path = tmp_path_factory.mktemp("albert")
    model = made(next(kind for kind in CLASSIFIERS if kind.name == "albert"), 0, path)
    (path / "model.safetensors").unlink()
    torch.save(model.state_dict(), path / "pytorch_model.bin")
    return path


@pytest.mark.parametrize("flags", [[], ["--graphs-only"]], ids=["bundle", "graphs"])
def test_a_note_comes_before_the_long_work(flags, directory, tmp_path):
    """On stderr, between the lines of progress, and once."""
    place = tmp_path / "models" / "albert" / "1"
    ran = CliRunner().invoke(export_app, [str(directory), str(place), "--no-explain", *flags])
    lines = ran.stderr.splitlines()
    work = next(index for index, line in enumerate(lines) if "exporting classifier.onnx" in line)

    assert (0, 1) == (ran.exit_code, len(ran.stdout.splitlines()))
    assert [PICKLES] == [line for line in lines[:work] if line.startswith("note: ")]
    assert not any(line.startswith("note: ") for line in lines[work:])
