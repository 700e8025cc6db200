"""A recipe runs to its end: what it writes loads, and its card is whole. How well it learns, its own run shows."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from weft_export.checkpoints.directory import load_checkpoint
from weft_export.errors import ExportError
from weft_recipes.catalogue import ADAPTERS, RECIPES
from weft_recipes.shared import base
from weft_recipes.shared.training import fit, prepare

FOLDER = Path(__file__).parents[3] / "export" / "checkpoints"
# CI runs one.
QUICK = "lengths"


@pytest.fixture
def briefly(monkeypatch):
    """Return the `train` of a recipe that takes two steps wherever it trains."""

    def fit_briefly(*given, num_steps, **more):
        fit(*given, num_steps=min(2, num_steps), **more)

    def train_of(name):
        importlib.import_module(f"weft_recipes.{name.replace('-', '_')}")
        for module in [module for path, module in sys.modules.items() if path.startswith("weft_recipes.")]:
            if getattr(module, "fit", None) is fit:
                monkeypatch.setattr(module, "fit", fit_briefly)
        monkeypatch.setattr(base, "FOLDERS", (FOLDER,))
        return (RECIPES | ADAPTERS)[name]

    return train_of


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == QUICK else pytest.mark.long) for name in sorted(RECIPES)],
)
def test_recipe_runs_to_its_end(name, tmp_path, briefly):
    """With two steps it writes a checkpoint that loads and says what is explained, as its committed one does."""
    briefly(name)(tmp_path / name, lambda *_: None)

    made, kept = (load_checkpoint(folder / name) for folder in (tmp_path, FOLDER))
    assert (kept.attention_layer is None) == (made.attention_layer is None)
    assert kept.files.keys() == made.files.keys()
    assert (tmp_path / name / "README.md").read_text(encoding="utf-8").startswith(f"# {name}: ")


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_recipe_of_an_adapter_runs_to_its_end(name, tmp_path, briefly):
    """With two steps it writes the files of an adapter, and its card."""
    briefly(name)(tmp_path / name, lambda *_: None)

    files = {path.name for path in (tmp_path / name).iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md"} <= files


def test_recipe_without_its_base_says_what_to_train(tmp_path, monkeypatch):
    """Who trains an adapter, a student or an answerer away from the checkpoints is told which one is missing."""
    monkeypatch.chdir(tmp_path)
    for name, needed in (
        ("scenes-answers", "scenes"),
        ("scenes-match", "scenes"),
        ("en-es-formal", "en-es"),
        ("found-digits-deit", "found-digits-resnet"),
    ):
        with pytest.raises(ExportError, match=f"weft train {needed}$"):
            (RECIPES | ADAPTERS)[name](tmp_path / name, lambda *_: None)


@pytest.mark.parametrize("which", ["one", "another"])
def test_the_threads_of_a_recipe_end_with_its_test(which):
    """A recipe holds torch to two threads. With them, a test that follows may take ten times as long."""
    assert 1 == torch.get_num_threads(), which
    prepare(0)
    assert 2 == torch.get_num_threads()
