"""Parity of a bundle that other tests load meanwhile."""

import shutil
import tempfile
from pathlib import Path

from weft_export.verification.parity import check_parity


def parity_of(checkpoint, directory, precision, **given):
    """What check_parity says of a copy. For a moment it puts files beside the graphs, which no manifest lists."""
    with tempfile.TemporaryDirectory() as folder:
        return check_parity(checkpoint, shutil.copytree(directory, Path(folder) / "1"), precision, **given)
