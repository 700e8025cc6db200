"""How much a checkpoint may say: what a server bounds in a manifest, refused before a model is made or exported.

weft_server.bundle_limits has the same bounds as bundle.proto states; a test holds one to the other.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from google.protobuf.message import Message

from weft_export.writer import State

MAX_DESCRIPTION, MAX_LABEL, MAX_GOLDEN_TEXT = 4096, 1024, 65_536
"""Characters."""
MAX_LAYERS = 1024
"""Of layers that attend."""
MAX_GRID = 65_536
"""Of patches."""
MAX_STATE_ELEMENTS = 2**32
"""Of one state of one sequence."""
MAX_PROBABILITIES = 262_144
"""Of a golden answer: labels, times tokens for a tagger."""
MAX_MANIFEST_BYTES = 8_388_608
MAX_CHARS_PER_TOKEN = 32
"""Of a text: a longer one is refused by a server before it is tokenized."""
MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS = 2**23, 2**24
"""Of a golden picture: what a server takes unless it is set otherwise."""


class Bound(NamedTuple):
    """Of a number its range, of a string its length in characters; of a repeated field also how many there may be."""

    most: float
    entries: int | None = None
    least: float = 0


BOUNDS = {
    "text": {
        "source_tokenizer": Bound(255),
        "target_tokenizer": Bound(255),
        "end_ids": Bound(4_194_303, entries=256),
        "source_languages": Bound(64, entries=1024),
        "target_languages": Bound(64, entries=1024),
        "prefixes": Bound(1024, entries=256),
    },
    "image": {
        "mean": Bound(1000, entries=3, least=-1000),
        "std": Bound(1000, entries=3, least=0.001),
        "grid_rows": Bound(4096),
        "grid_columns": Bound(4096),
    },
}
"""By the key of config.json and its field; what is not here has its bound by the model's sizes."""


def check_spec(key: str, spec: Message | None) -> None:
    """Raise ValueError naming the first field of text or image that is beyond its bound."""
    if spec is None:
        return
    for field, value in spec.ListFields():
        bound = BOUNDS[key].get(field.name)
        if bound is not None:
            name = f"{key}.{field.name}"
            if bound.entries is None:
                _check_one(name, value, bound)
            else:
                check_list(name, value, bound.entries)
                for index, each in enumerate(value):
                    _check_one(f"{name}[{index}]", each, bound)


def check_labels_said(labels: Sequence[str]) -> None:
    """Raise ValueError naming the first label that is too long."""
    for index, label in enumerate(labels):
        check_length(f"labels[{index}]", label, MAX_LABEL)


def check_length(name: str, value: str, most: int) -> None:
    """Raise ValueError when a string is too long."""
    if len(value) > most:
        raise ValueError(f"{name} has {len(value)} characters; at most {most} are allowed")


def check_list(name: str, value: Sequence[object], most: int) -> None:
    """Raise ValueError when there are too many entries."""
    if len(value) > most:
        raise ValueError(f"{name} has {len(value)} entries; at most {most} are allowed")


def check_states(states: Iterable[State]) -> None:
    """Raise ValueError when a sequence of a model would take more memory than a server gives one."""
    for state in states:
        elements = math.prod(state.shape)
        if elements > MAX_STATE_ELEMENTS:
            raise ValueError(
                f"the state {state.name!r} of a sequence would have {elements} numbers; at most {MAX_STATE_ELEMENTS}"
                " are allowed"
            )


def _check_one(name: str, value: str | float, bound: Bound) -> None:
    if isinstance(value, str):
        check_length(name, value, int(bound.most))
    elif not bound.least <= value <= bound.most:  # said this way round, NaN fails
        raise ValueError(f"{name} is {value:g}; it must be in [{bound.least:g}, {bound.most:g}]")
