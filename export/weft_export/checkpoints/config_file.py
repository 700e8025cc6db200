"""config.json: from the file to what it says, each part of the type that it must have, and back.

Its keys:

    family           one of weft_export.families.registry.FAMILIES
    description      one sentence for people
    model            the sizes: the fields of the family's config dataclass
    text             weft.v1.TextSpec, field names as in bundle.proto; for a model that takes or gives text
    image            weft.v1.ImageSpec, likewise; for a model that takes an image
    audio            weft.v1.AudioSpec, likewise; for a model that takes a recording
    labels           the classes in index order; for a classifier
    label_text       the text of a label, which takes the place of {}; for a model that matches
    decoding         {"max_new_tokens": n}, the default of a request; for a model that gives text. It may have other
                     fields of weft.v1.Decoding too, such as {"beams": {"num_beams": 4}}
    golden           {"text": "..."}, {"image": "golden.png"} or {"audio": "golden.wav"}: the request that a server
                     tries before it is ready. Where a request must name its languages, it has "source_language" and
                     "target_language" too; with an image for a model that answers, it has "question"
    metric           how answers to held-out requests are scored: one of the task's metrics in specs.DEMANDS, by default
                     the first
    attention_layer  which attention layer explains, counted from 0, when a request names none; for a model that attends
                     and has no summary of all its layers
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.files import read_file
from weft_export.errors import CheckpointError, ExportError
from weft_export.families.registry import FAMILIES, family_of
from weft_proto.bundle_rules import CONFIG_FILE, only_asked
from weft_proto.v1 import bundle_pb2, common_pb2

_SPECS = {"text": bundle_pb2.TextSpec, "image": bundle_pb2.ImageSpec, "audio": bundle_pb2.AudioSpec}
_KEYS = {"family", "description", "model", *_SPECS, "labels", "decoding", "golden", "attention_layer", "metric"}
_KEYS |= {"label_text"}
_LENGTHS = ("max_new_tokens", "min_new_tokens")
# What golden may name a file of, and what it may have besides.
_FILES = {"image", "audio"}
_LANGUAGES = {"source_language", "target_language"}
_BESIDES = {*_LANGUAGES, "labels", "question"}
# What a Hugging Face directory's config.json has, and ours has not.
_FOREIGN_KEYS = ("model_type", "architectures", "transformers_version")


def read_config(directory: Path) -> dict[str, Any]:
    """Read config.json of a directory. The family that it names exists.

    Raises:
        CheckpointError: it is no JSON object of a checkpoint.
    """
    path = directory / CONFIG_FILE
    try:
        config = json.loads(read_file(path))
        place = _not_text(config, "config.json")
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    except RecursionError as error:
        raise CheckpointError(f"{path} is nested too deeply") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    _check_family(directory, config)
    if place:
        raise CheckpointError(f"{path}: {place} has half of a surrogate pair, which is no character")
    return config


def fields_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a Checkpoint that config.json gives, but for the family and its sizes.

    Raises:
        ValueError, TypeError, json_format.ParseError: a key is missing or unknown, or its value is of another type.
    """
    unknown = sorted(set(config) - _KEYS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    given = _typed(config["golden"], dict, "golden")
    if len(given.keys() - _BESIDES) != 1 or not given.keys() <= {"text", *_FILES, *_BESIDES}:
        raise ValueError("golden must have text, image or audio, and nothing else but languages, labels and a question")
    golden = {f"{key}_path" if key in _FILES else key: value for key, value in given.items()}
    labels = _typed(config.get("labels", []), list, "labels")
    decoding = config.get("decoding")
    fields: dict[str, Any] = {
        "description": _typed(config["description"], str, "description"),
        "golden": json_format.ParseDict(golden, bundle_pb2.Golden()),
        "labels": tuple(_typed(label, str, "a label") for label in labels),
    }
    if decoding is not None:
        fields |= _decoding_of(_typed(decoding, dict, "decoding"))
    if "attention_layer" in config:
        fields["attention_layer"] = _typed(config["attention_layer"], int, "attention_layer")
    for key in ("metric", "label_text"):
        if key in config:
            fields[key] = _typed(config[key], str, key)
    for key, spec in _SPECS.items():
        if key in config:
            fields[key] = json_format.ParseDict(_typed(config[key], dict, key), spec())
    return fields


def _decoding_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the lengths and the rest of a model's own Decoding, whose fields have the contract's names."""
    rest = {name: value for name, value in given.items() if name not in _LENGTHS}
    if "max_new_tokens" not in given:
        raise ValueError("decoding must have max_new_tokens")
    for name in sorted(rest.keys() - common_pb2.Decoding.DESCRIPTOR.fields_by_name.keys()):
        raise ValueError(f"decoding has no field {name!r:.60}")
    lengths = {name: _typed(given[name], int, f"decoding.{name}") for name in _LENGTHS if name in given}
    decoding = json_format.ParseDict(rest, common_pb2.Decoding())
    if asked := only_asked(decoding):
        raise ValueError(f"decoding has {asked}, which is a request's to ask for")
    return {**lengths, "decoding": decoding}


def config_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what config.json says of a checkpoint."""
    model_config: Any = checkpoint.model.config
    kind = checkpoint.golden.WhichOneof("input") or "text"
    config: dict[str, Any] = {"family": checkpoint.family, "description": checkpoint.description}
    config["model"] = asdict(model_config)
    for key in _SPECS:
        if (spec := getattr(checkpoint, key)) is not None:
            config[key] = json_format.MessageToDict(spec, preserving_proto_field_name=True)
    if checkpoint.labels:
        config["labels"] = list(checkpoint.labels)
    if checkpoint.max_new_tokens is not None:
        rest = json_format.MessageToDict(checkpoint.decoding, preserving_proto_field_name=True)
        config["decoding"] = {"max_new_tokens": checkpoint.max_new_tokens, **rest}
    if checkpoint.min_new_tokens:
        config["decoding"]["min_new_tokens"] = checkpoint.min_new_tokens
    config["golden"] = {kind.removesuffix("_path"): getattr(checkpoint.golden, kind)}
    besides = {key: getattr(checkpoint.golden, key) for key in ("question", *sorted(_LANGUAGES))}
    config["golden"] |= {key: value for key, value in besides.items() if value}
    if checkpoint.label_text:
        config["label_text"] = checkpoint.label_text
        config["golden"]["labels"] = list(checkpoint.golden.labels)
    if checkpoint.attention_layer is not None:
        config["attention_layer"] = checkpoint.attention_layer
    if checkpoint.metric is not None:
        config["metric"] = checkpoint.metric
    return config


def _check_family(directory: Path, config: dict[str, Any]) -> None:
    family = config.get("family")
    if "family" not in config:
        for key in _FOREIGN_KEYS:
            if key in config:
                raise CheckpointError(
                    f"{directory} is a Hugging Face directory ({key} {config[key]!r:.60}), which"
                    " weft_export.converters.convert reads"
                )
        raise CheckpointError(
            f"{directory / CONFIG_FILE}: 'family' is missing; known are {', '.join(sorted(FAMILIES))}"
        )
    try:
        family_of(family)
    except ExportError as error:
        raise CheckpointError(f"{directory}: {error}") from error


def _not_text(value: object, place: str) -> str:
    """Return where in a JSON value a string cannot be written as UTF-8, or nothing."""
    if isinstance(value, str):
        return place if any("\ud800" <= char <= "\udfff" for char in value) else ""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    # A key is looked at by the place that it gives.
    found = (_not_text(key, place) or _not_text(part, f"{place}, {key}") for key, part in parts)
    return next(filter(None, found), "")


def _typed(value: Any, kind: type[Any], name: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{name} must be of type {kind.__name__}, not {type(value).__name__}")
    return value
