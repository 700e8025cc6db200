"""The labels of a model: a line each, a JSON list, or the id2label of a Hugging Face config.json."""

import json
from pathlib import Path
from typing import Any

from weft_export.checkpoints.files import read_file
from weft_export.errors import CheckpointError


def read_labels(path: Path) -> tuple[str, ...]:
    """Return the labels that a file names, in the order of their indices.

    Raises:
        CheckpointError: it holds none, or something else.
    """
    try:
        text = read_file(path).decode()
        found: Any = json.loads(text) if path.suffix == ".json" else [line for line in text.splitlines() if line]
    except (ValueError, RecursionError) as error:  # bytes that are no UTF-8 raise ValueError
        raise CheckpointError(f"{path} cannot be read as labels: {error}") from error
    if isinstance(found, dict):
        by_index = found.get("id2label", {})
        found = [by_index.get(str(index)) for index in range(len(by_index))] if isinstance(by_index, dict) else []
    if not isinstance(found, list) or not found or not all(isinstance(label, str) and label for label in found):
        raise CheckpointError(f"{path} has no labels: a line each, a JSON list, or a config.json with id2label")
    return tuple(found)
