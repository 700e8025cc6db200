"""The checkpoint that a recipe begins with: another recipe's."""

from pathlib import Path

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint
from weft_export.errors import ExportError

FOLDERS = (Path("export/checkpoints"), Path("build/checkpoints"))
"""Where one is looked for, from the working directory on: as it was committed, or as somebody trained it again."""


def load_base(name: str) -> Checkpoint:
    """Load the checkpoint of the recipe `name`.

    Raises:
        ExportError: there is none.
    """
    directory = next((folder / name for folder in FOLDERS if (folder / name).exists()), None)
    if directory is None:
        raise ExportError(f"it begins with {FOLDERS[-1] / name}, which is not here: weft train {name}")
    return load_checkpoint(directory)
