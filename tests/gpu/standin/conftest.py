"""What the tests of this folder share: modules that only they need, and bundles in half precision."""

import sys
from pathlib import Path

import pytest

from weft_export.options import ExportOptions

sys.path.insert(0, str(Path(__file__).parent))
CHECKPOINTS = Path(__file__).parents[3] / "export" / "checkpoints"


@pytest.fixture(scope="session")
def bundles(tmp_path_factory):
    """A function: the directory of a trained model's bundle, by name and precision."""
    from weft_export.export import export_checkpoint

    made = {}

    def bundle(name, precision):
        if (name, precision) not in made:
            directory = tmp_path_factory.mktemp(precision) / name / "1"
            export_checkpoint(CHECKPOINTS / name, directory, ExportOptions(precision=precision))
            # One that was broken off is none.
            made[name, precision] = directory
        return made[name, precision]

    return bundle
