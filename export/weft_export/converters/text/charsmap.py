"""The compiled rules of normalisation inside a SentencePiece model: checked before anything walks through them.

They are a trie in a double array (Aoe, 1989) and the texts that its leaves point to. A wrong offset would lead whoever
walks through it out of the array.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft_export.errors import CheckpointError


def check_charsmap(path: Path, charsmap: bytes) -> None:
    """Raise CheckpointError unless every step through the rules stays inside them."""
    problem = _problem(charsmap)
    if problem:
        raise CheckpointError(f"{path}: the rules of normalisation {problem}")


def check_charsmaps(path: Path, normalizer: Any) -> None:
    """Raise CheckpointError unless the rules in a normalizer of a tokenizers JSON can be walked through."""
    steps = [normalizer]
    while steps:
        step = steps.pop()
        if not isinstance(step, dict):
            continue
        inside = step.get("normalizers")
        steps += inside if isinstance(inside, list) else []
        if step.get("type") == "Precompiled":
            check_charsmap(path, charsmap_of(path, step))


def charsmap_of(path: Path, step: Mapping[str, Any]) -> bytes:
    """Return the compiled rules of one step of a normalizer. CheckpointError when they are not base64."""
    try:
        return base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the rules of normalisation are not base64: {error}") from error


def _problem(charsmap: bytes) -> str | None:
    """What is wrong, in words."""
    size = int.from_bytes(charsmap[:4], "little")
    texts = charsmap[4 + size :]
    # A trie is made in blocks of 256 units, of 4 bytes each.
    if size == 0 or size % 1024 or 4 + size > len(charsmap):
        return "have a trie of a wrong size"
    try:
        texts.decode()
    except UnicodeDecodeError:
        return "are not UTF-8"
    units = np.frombuffer(charsmap, dtype="<u4", count=size // 4, offset=4).astype(np.int64)
    return _problem_of_trie(units, np.frombuffer(texts, dtype=np.uint8))


def _problem_of_trie(units: "np.ndarray[Any, Any]", texts: "np.ndarray[Any, Any]") -> str | None:
    is_leaf = (units >> 31) == 1
    begins = units[is_leaf] & 0x7FFFFFFF
    # A leaf's value is where a text begins, and a zero byte ends the text.
    if len(begins) and (not len(texts) or texts[-1] != 0 or begins.max() >= len(texts)):
        return "point out of their texts"
    if ((texts[begins] & 0xC0) == 0x80).any():
        return "point into a character"
    offsets = (units >> 10) << ((units & 0x200) >> 6)
    reached = (np.arange(len(units)) ^ offsets)[~is_leaf]
    if ((reached | 255) >= len(units)).any():
        return "lead out of their trie"
    if not is_leaf[reached[(units[~is_leaf] & 0x100) != 0]].all():
        return "end at no leaf"
    return None
