"""Which way of pooling a `1_Pooling/config.json` of sentence-transformers says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft_export.choices import POOLINGS, Pooling
from weft_export.errors import CheckpointError

_FLAG = "pooling_mode_"
_BY_NAME = {name: pooling for pooling, names in POOLINGS.items() for name in (names.word, names.flag)}


def pooling_in(path: Path, config: Mapping[str, Any]) -> Pooling:
    """Return what a file says. CheckpointError unless it is one way that we have.

    path: the file, for an error. config: what it holds: `pooling_mode`, or else flags that each stand for a way.
    """
    word = config.get("pooling_mode")
    found = [name for name, value in config.items() if name.startswith(_FLAG) and value] if word is None else [word]
    if len(found) != 1 or not isinstance(found[0], str) or found[0] not in _BY_NAME:
        known = ", ".join(names.word for names in POOLINGS.values())
        raise CheckpointError(f"{path} pools by {', '.join(map(str, found)) or 'nothing'}; one of {known} is supported")
    return _BY_NAME[found[0]]
