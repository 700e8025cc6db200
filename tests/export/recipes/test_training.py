"""A recipe runs to its end: what it writes loads, and its card is whole. How well it learns, its own run shows."""

import pytest

from weft_export.checkpoints.directory import load_checkpoint
from weft_recipes import pydocs
from weft_recipes.shared.training import fit


@pytest.mark.slow
def test_pydocs_runs_to_its_end(tmp_path, monkeypatch):
    """With two steps it writes a checkpoint that loads and says which layer is explained, and its card."""

    def fit_briefly(*given, num_steps, **more):
        fit(*given, num_steps=min(2, num_steps), **more)

    monkeypatch.setattr(pydocs, "fit", fit_briefly)
    pydocs.train(tmp_path / "pydocs", lambda *_: None)
    assert 0 == load_checkpoint(tmp_path / "pydocs").attention_layer
    assert (tmp_path / "pydocs" / "README.md").read_text().startswith("# pydocs: ")
