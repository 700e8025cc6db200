"""The tiny checkpoints, to be looked at: which are of a kind is asked at collection, by many files."""

from functools import cache

from tiny import CHECKPOINTS

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.writer import Writer


@cache
def sample(name: str) -> Checkpoint:
    """Return one of CHECKPOINTS, always the same object. Who changes a model makes one of its own."""
    return CHECKPOINTS[name]()


WRITERS = [name for name in CHECKPOINTS if isinstance(sample(name).model, Writer)]
"""Those that produce text."""
