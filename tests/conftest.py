"""Fixtures that several test folders share."""

import sys
from pathlib import Path

import pytest

# Tests are no packages; the few modules that they share are found by name.
sys.path.insert(0, str(Path(__file__).parent / "export"))


@pytest.fixture(scope="session")
def tiny_repository(tmp_path_factory):
    """Export a tiny random checkpoint of each family once: a model repository with tiny-*/1.

    The models are tiny-translate, tiny-caption, tiny-image, tiny-text and tiny-generate. Copy what you mean to change.
    """
    import torch
    from tiny import CHECKPOINTS, save_tiny

    from weft_export.export import export_checkpoint

    torch.set_num_threads(1)  # a second one gains nothing on tiny tensors
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    repository = tmp_path_factory.mktemp("repository")
    for name in CHECKPOINTS:
        export_checkpoint(save_tiny(name, checkpoints / name), repository / name / "1")
    return repository
