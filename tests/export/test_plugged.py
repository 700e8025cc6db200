"""Families of other packages, by the entry points `weft.families`."""

import sys

import pytest
import torch

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.errors import CheckpointError, ExportError
from weft_export.families.registry import family_of
from weft_proto.v1 import bundle_pb2

MODULE = """
from dataclasses import dataclass
from torch import nn
from weft_export.families.classifier import Classifier
from weft_export.families.family import Family
from weft_proto.v1 import common_pb2

@dataclass(frozen=True)
class Sizes:
    channels: int
    image_height: int
    image_width: int
    num_labels: int
    grid: tuple[int, int] = (1, 1)

class Flat(Classifier):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.head = nn.Linear(config.channels * config.image_height * config.image_width, config.num_labels)

    def forward(self, pixel_values):
        return self.head(pixel_values.flatten(1))

FAMILY = Family(Flat, Sizes, common_pb2.TASK_CLASSIFY_IMAGE)
TEXT = Family(Flat, Sizes, common_pb2.TASK_TRANSLATE)
TASK = Family(Flat, Sizes, 77)
"""


def install(directory, name, value, package="flat-family"):
    """Put a package with one entry point where a sys.path can find it; nothing is imported."""
    (directory / "flat_family.py").write_text(MODULE)
    info = directory / f"{package.replace('-', '_')}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[weft.families]\n{name} = {value}\n")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A directory of sys.path, whose modules are forgotten afterwards."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, "flat_family", raising=False)
    yield directory
    sys.modules.pop("flat_family", None)


def test_a_family_of_another_package_is_as_one_of_ours(elsewhere, tmp_path):
    """A checkpoint of it is written and read; its package is imported only when a checkpoint names it."""
    install(elsewhere, "flat", "flat_family:FAMILY")
    family_of("gpt")
    assert "flat_family" not in sys.modules

    family = family_of("flat")
    model = family.model(family.config(channels=1, image_height=2, image_width=2, num_labels=2))
    spec = bundle_pb2.ImageSpec(channels=1, height=2, width=2, resample="RESAMPLE_BOX", grid_rows=1, grid_columns=1)
    spec.mean.append(0.5)
    spec.std.append(0.5)
    golden, files = bundle_pb2.Golden(image_path="golden.png"), {"golden.png": b""}
    checkpoint = Checkpoint("flat", "", model, golden, image=spec, labels=("no", "yes"), files=files)
    save_checkpoint(tmp_path / "checkpoint", checkpoint)
    assert torch.equal(model.head.weight, load_checkpoint(tmp_path / "checkpoint").model.head.weight)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("gpt", "flat_family:FAMILY", "'gpt' is one of Weft's own, and the package flat-family brings another"),
        ("flat", "no_such_module:FAMILY", "of the package flat-family cannot be loaded: ModuleNotFoundError"),
        ("flat", "flat_family:Flat", "must be a Family of weft_export.families.family, not <class"),
        ("flat", "flat_family:TEXT", "for translate its model must be a class that derives Writer"),
        ("flat", "flat_family:TASK", "its task 77 is none of"),
    ],
)
def test_a_wrong_entry_point_is_named(name, value, complaint, elsewhere):
    """What a package brings wrongly is one sentence that names the package, when a checkpoint asks for it."""
    install(elsewhere, name, value)
    family_of("bert")

    with pytest.raises(ExportError, match=complaint):
        family_of(name)


def test_two_packages_with_one_name_are_refused(elsewhere):
    """Which of them would be taken would depend on the order of sys.path."""
    install(elsewhere, "flat", "flat_family:FAMILY")
    install(elsewhere, "flat", "flat_family:FAMILY", package="other-family")

    with pytest.raises(ExportError, match="the package flat-family and the package other-family bring a family 'flat'"):
        family_of("flat")


def test_an_unknown_family_is_answered_with_all_there_are(elsewhere):
    """Those of other packages are listed, without being imported."""
    install(elsewhere, "flat", "no_such_module:FAMILY")

    with pytest.raises(
        CheckpointError, match=r"unknown family 'flatt'; known are .*decoder_only.*, flat, florence2, gemma3, git, gpt"
    ):
        family_of("flatt")
