"""What makes one vector of a text: the files of sentence-transformers beside a body's, or what the exporter chooses.

modules.json lists a Transformer, a Pooling, perhaps Dense layers, and perhaps Normalize. Each has a folder.
"""

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft_export.checkpoints.files import read_file
from weft_export.converters.converter import Foreign
from weft_export.converters.sources import Names, Source
from weft_export.converters.tensors import StoredTensors
from weft_export.errors import CheckpointError
from weft_export.families.decoder_embedder import DecoderEmbedderConfig
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.families.encoder_only import FIRST, MEAN, EncoderConfig
from weft_export.families.text_embedder import LAST, MAX, Dense, TextEmbedderConfig

MODULES = "modules.json"
_SETTINGS = "sentence_bert_config.json"
_PROMPTS = "config_sentence_transformers.json"
_CHOICES = {"cls": FIRST, "mean": MEAN, "last": LAST, "max": MAX}
# In the order of the old flags. The new file has one word instead.
_FLAGS = {
    "pooling_mode_cls_token": FIRST,
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_lasttoken": LAST,
    "pooling_mode_max_tokens": MAX,
}
_WORDS = {"cls": FIRST, "mean": MEAN, "lasttoken": LAST, "max": MAX}
_ACTIVATIONS = {"Identity": None, "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu"}
_MOST_MODULES = 16


@dataclass(frozen=True)
class _Ending:
    """What stands behind a body. folders are those of the dense layers."""

    pooling: str
    normalized: bool
    dense: tuple[Dense, ...] = ()
    folders: tuple[Path, ...] = ()


def embedder_sizes(body: EncoderConfig, foreign: Foreign) -> TextEmbedderConfig:
    """Put what is behind a body to its sizes.

    Raises:
        CheckpointError: nothing says it, or it is not supported.
    """
    ending = _ending_of(foreign)
    kept = {field.name: getattr(body, field.name) for field in fields(EncoderConfig)}
    kept["max_tokens"] = _bounded(body.max_tokens, foreign)
    return TextEmbedderConfig(**kept, pooling=ending.pooling, dense=ending.dense, normalized=ending.normalized)


def decoder_embedder_sizes(body: DecoderOnlyConfig, foreign: Foreign) -> DecoderEmbedderConfig:
    """Do the same for a decoder, whose words are only read. Raises as embedder_sizes."""
    ending = _ending_of(foreign)
    words = replace(body.words, tied=True, bias=False, transform=None)
    body = replace(body, words=words, max_tokens=_bounded(body.max_tokens, foreign))
    return DecoderEmbedderConfig(body=body, pooling=ending.pooling, dense=ending.dense, normalized=ending.normalized)


def _bounded(max_tokens: int, foreign: Foreign) -> int:
    longest = _longest(foreign)
    return max_tokens if longest is None or foreign.choices.max_tokens is not None else min(longest, max_tokens)


def dense_names(_: object, foreign: Foreign) -> Names:
    """Return the sources of the dense layers, which lie in folders of their own."""
    names: dict[str, Source | str] = {}
    for index, folder in enumerate(_ending_of(foreign).folders):
        stored = StoredTensors(folder)
        for part in stored.entries:
            names[f"dense.{index}.{part.removeprefix('linear.')}"] = _apart(stored, part)
    return names


def _apart(stored: StoredTensors, name: str) -> Source:
    def make() -> Tensor:
        # The sizes are compared on meta, where nothing is read.
        is_meta = torch.empty(0).is_meta
        return torch.empty(stored.entries[name].shape) if is_meta else stored.read(name)

    return Source((), make)


def _ending_of(foreign: Foreign) -> _Ending:
    directory, chosen = foreign.directory, foreign.choices.pooling
    if chosen is not None:
        return _Ending(_CHOICES[chosen], normalized=True)
    if not (directory / MODULES).exists():
        raise CheckpointError(
            f"{directory} has no {MODULES} of sentence-transformers, which says how a text becomes one vector;"
            " choose it by --pooling"
        )
    modules = [(_last_word(each), directory / str(each.get("path", ""))) for each in _modules(directory / MODULES)]
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Dense", "Normalize"}:
        raise CheckpointError(
            f"{directory / MODULES} lists {', '.join(kinds)}; a Transformer and a Pooling are supported, then Dense"
            " and Normalize"
        )
    if "Normalize" in kinds[:-1]:
        raise CheckpointError(f"{directory / MODULES}: Normalize is supported as the last module alone")
    if modules[0][1] != directory:
        raise CheckpointError(f"{directory / MODULES}: the Transformer is supported in the same directory alone")
    dense = [(folder, _dense(folder)) for kind, folder in modules if kind == "Dense"]
    return _Ending(
        _pooling(modules[1][1]),
        normalized=kinds[-1] == "Normalize",
        dense=tuple(layer for _, layer in dense),
        folders=tuple(folder for folder, _ in dense),
    )


def _modules(path: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = _read(path, list)
    if not 2 <= len(listed) <= _MOST_MODULES or not all(isinstance(each, dict) for each in listed):
        raise CheckpointError(f"{path} is no list of 2 to {_MOST_MODULES} modules")
    for each in listed:
        place = str(each.get("path", ""))
        # A folder of this directory, and nothing above or beside it.
        if place and (Path(place).name != place or place.startswith(".")):
            raise CheckpointError(f"{path} names the folder {place!r:.60}, which is not in the same directory")
    return listed


def _last_word(module: dict[str, Any]) -> str:
    return str(module.get("type", "")).rpartition(".")[2]


def _pooling(folder: Path) -> str:
    config = _read(folder / "config.json", dict)
    if (word := config.get("pooling_mode")) is not None:
        found = [word]
    else:
        found = [name for name, value in config.items() if name.startswith("pooling_mode_") and value]
    known = {**_WORDS, **_FLAGS}
    if len(found) != 1 or not isinstance(found[0], str) or found[0] not in known:
        raise CheckpointError(
            f"{folder / 'config.json'} pools by {', '.join(map(str, found)) or 'nothing'}; one of cls, mean, lasttoken"
            " and max is supported"
        )
    return known[found[0]]


def _dense(folder: Path) -> Dense:
    config = _read(folder / "config.json", dict)
    word = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    if word not in _ACTIVATIONS:
        raise CheckpointError(f"{folder / 'config.json'}: the activation {word!r:.60} is not supported")
    width, bias = config.get("out_features"), config.get("bias", True)
    if type(width) is not int or not isinstance(bias, bool):
        raise CheckpointError(f"{folder / 'config.json'} has no whole out_features, or a bias that is no flag")
    return Dense(width, _ACTIVATIONS[word], bias)


def _longest(foreign: Foreign) -> int | None:
    """Return how long a text may be, and note what a person has to do with theirs."""
    longest = None
    if (foreign.directory / _SETTINGS).exists():
        settings = _read(foreign.directory / _SETTINGS, dict)
        given = settings.get("max_seq_length")
        longest = given if type(given) is int and given > 0 else None
        if settings.get("do_lower_case") is True:
            foreign.fields.notes.append("sentence-transformers lower-cases texts first; send them so")
    if (foreign.directory / _PROMPTS).exists():
        prompts = _read(foreign.directory / _PROMPTS, dict).get("prompts")
        if isinstance(prompts, dict) and (said := {name: text for name, text in prompts.items() if text}):
            shown = ", ".join(f"{name}: {text!r}" for name, text in list(said.items())[:4])
            foreign.fields.notes.append(f"texts are to begin with a prompt, which a request brings itself ({shown})")
    return longest


def _read(path: Path, kind: type[Any]) -> Any:
    try:
        value = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, kind):
        raise CheckpointError(f"{path} holds no {'list' if kind is list else 'object'}")
    return value
