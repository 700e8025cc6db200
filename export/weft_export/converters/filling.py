"""From their tensors to our weights: every one of ours is filled, and every one of theirs is used, or nothing is."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.checkpoints.formats import is_one_file
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.sources import Source, source_of
from weft_export.converters.tensors import NamedTensors, check_type
from weft_export.errors import CheckpointError

_SHOWN = 8


def plan(
    converter: Converter, config: Any, hf: HfCheckpoint, shell: nn.Module, stored: NamedTensors
) -> dict[str, Source]:
    """Return where each weight of ours comes from. shell is our model on meta: nothing is read.

    Raises:
        CheckpointError: There are three cases:
            1. A weight of ours has no source in the files.
            2. A tensor of theirs is not used.
            3. A tensor is of another type or shape than the config says.
    """
    table = {**converter.names(config)}
    if converter.computed_names is not None:
        table |= converter.computed_names(config, hf)
    known = _spelled(converter, stored)
    prefixed = not converter.prefix or any(name.startswith(converter.prefix) for name in known)
    sources, missing = {}, []
    for ours in shell.state_dict():
        source = source_of(table, ours)
        if not prefixed:
            source = _without(converter.prefix, source)
        sources[ours] = _called(source, known)
        missing += [name for name in source.names if name not in known and name not in source.optional]
        if source.needs_one and known.keys().isdisjoint(source.names):
            missing.append(source.names[0])
    used = {name for source in sources.values() for name in source.names}
    unused = sorted(name for each, name in known.items() if name not in used and not _ignored(converter, each))
    if missing or unused:
        _refuse(stored, missing, unused)
    for ours, tensor in shell.state_dict().items():
        _check_shape(ours, tensor, sources[ours], stored)
    return sources


def fill(sources: Mapping[str, Source], stored: NamedTensors) -> dict[str, Tensor]:
    """Return our weights. What only changes its name stays in its mapped file; two of ours may share one of theirs.

    Of theirs each is read once, and let go when the last of ours is made: all experts of a layer may lie in one.
    """
    left = Counter(name for source in sources.values() for name in _there(source, stored))
    held: dict[str, Tensor] = {}
    weights = {}
    for ours, source in sources.items():
        names = _there(source, stored)
        held |= {name: stored.read(name) for name in names if name not in held}
        weights[ours] = _made(source, held)
        left.subtract(names)
        held = {name: tensor for name, tensor in held.items() if left[name]}
    return weights


def _there(source: Source, stored: NamedTensors) -> list[str]:
    return [name for name in source.names if name in stored.entries]


def _made(source: Source, tensors: Mapping[str, Tensor]) -> Tensor:
    if source.make is None:
        (name,) = source.names
        return tensors[name]
    return source.make(*map(tensors.get, source.names)).contiguous()


def _check_shape(ours: str, expected: Tensor, source: Source, stored: NamedTensors) -> None:
    """Make the weight of tensors without memory, and compare."""
    entries = {name: stored.entries[name] for name in _there(source, stored)}
    for name, entry in entries.items():
        check_type(str(_where(stored)), name, entry)
    shapes = ", ".join(f"{name} {list(entry.shape)}" for name, entry in entries.items())
    try:
        with torch.device("meta"):
            made = _made(source, {name: torch.empty(entry.shape) for name, entry in entries.items()})
    except (RuntimeError, ValueError, IndexError) as error:
        raise CheckpointError(f"{ours} cannot be made of {shapes}: the sizes differ from config.json") from error
    if made.shape != expected.shape:
        raise CheckpointError(
            f"{ours} would be {list(made.shape)} and must be {list(expected.shape)}; made of {shapes}"
        )


def _where(stored: NamedTensors) -> Path:
    """Return the directory of the weights, or the one file that has them."""
    path = stored.paths[0]
    return path if is_one_file(path) else path.parent


def _spelled(converter: Converter, stored: NamedTensors) -> dict[str, str]:
    """Return the names of the files' tensors by what the table calls them.

    Raises:
        CheckpointError: two are one weight, in two spellings.
    """
    found: dict[str, str] = {}
    for name in stored.entries:
        called = name
        for pattern, replacement in converter.spellings:
            called = re.sub(pattern, replacement, called)
        if called in found:
            raise CheckpointError(f"{_where(stored)}: {found[called]} and {name} are two names of one weight")
        found[called] = name
    return found


def _ignored(converter: Converter, name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in converter.ignored)


def _without(prefix: str, source: Source) -> Source:
    return _called(source, {name: name.removeprefix(prefix) for name in source.names})


def _called(source: Source, names: Mapping[str, str]) -> Source:
    """Return a source whose tensors have other names. One that is not among them keeps its own."""
    short = {name: names.get(name, name) for name in source.names}
    return replace(source, names=tuple(short.values()), optional=frozenset(short[name] for name in source.optional))


def _refuse(stored: NamedTensors, missing: list[str], unused: list[str]) -> None:
    complaints = [
        f"{len(names)} {what}: {', '.join(names[:_SHOWN])}{' ...' if len(names) > _SHOWN else ''}"
        for what, names in (("weights are missing", missing), ("tensors of the files are not used", unused))
        if names
    ]
    raise CheckpointError(f"{_where(stored)}: {'; '.join(complaints)}")
