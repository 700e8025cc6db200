"""The model repository: which bundles lie in `<repository>/<model>/<version>/`. Nothing in them is opened here."""

import shlex
from pathlib import Path
from typing import NamedTuple

from weft_proto.bundle_rules import ADAPTERS_DIR, CONFIG_FILE, MANIFEST_FILE, MODEL_NAME, VERSION

# States the labels of a model's versions.
LABELS_FILE = "labels.json"
LAYOUT = f"a model repository holds MODEL/VERSION/{MANIFEST_FILE}"


class Candidate(NamedTuple):
    """A directory that may be a bundle."""

    name: str
    version: int
    directory: Path


class Scan(NamedTuple):
    """What a repository holds: candidates by name and then version, and a sentence for each entry that is none."""

    candidates: list[Candidate]
    oddities: list[str]


class RepositoryError(Exception):
    """The repository cannot be read, or holds no model: the message says what it is, and what to do."""


def scan_repository(repository: Path) -> Scan:
    """List a repository. Names that start with a dot are left alone: version control and mounts keep theirs there.

    Raises:
        RepositoryError: it is missing, no directory, not readable, or there is nothing in it that may be a bundle.
    """
    try:
        models = _entries(repository)
    except FileNotFoundError:
        raise RepositoryError(f"{repository} does not exist: {_how_to_make(repository)}") from None
    except NotADirectoryError:
        raise RepositoryError(f"{repository} is a file, not a folder: {LAYOUT}") from None
    except OSError as error:
        raise RepositoryError(f"{error.filename or repository}: {error.strerror}") from error
    scan = Scan([], [])
    for model in models:
        try:
            _scan_model(model, scan)
        except OSError as error:
            scan.oddities.append(f"{error.filename or model}: {error.strerror}")
    if not scan.candidates:
        raise RepositoryError(_what_it_is(repository, scan.oddities))
    return Scan(sorted(scan.candidates), scan.oddities)


def _what_it_is(directory: Path, oddities: list[str]) -> str:
    """Say what a directory without models is instead, and what to do."""
    # An empty path is shown as a dot, and has no parents.
    place = directory.absolute()
    if (directory / MANIFEST_FILE).exists():
        return (
            f"{directory} is one bundle, not a model repository; serve {place.parent.parent}, if that holds your models"
        )
    if any(directory.glob(f"*/{MANIFEST_FILE}")):
        return f"{directory} is one model, not a model repository; serve the folder that it is in, {place.parent}"
    if (directory / CONFIG_FILE).exists():
        makes = f"`weft export {shlex.quote(str(directory))} models/MODEL/1` makes a bundle of it"
        return f"{directory} is a checkpoint, not a model repository; {makes}"
    if checkpoints := sorted(directory.glob(f"*/{CONFIG_FILE}")):
        first = checkpoints[0].parent
        return (
            f"{directory} holds checkpoints, not bundles; `weft export {shlex.quote(str(first))}"
            f" {shlex.quote(f'models/{first.name}/1')}` makes a bundle of one, and `weft serve models` serves it"
        )
    if not oddities:
        return f"{directory} is empty: {_how_to_make(directory)}"
    more = f", and {len(oddities) - 1} more like it" if len(oddities) > 1 else ""
    return f"{directory} holds no model: {oddities[0]}{more}; {_how_to_make(directory)}"


def _how_to_make(directory: Path) -> str:
    return f"{LAYOUT}; `weft export CHECKPOINT {shlex.quote(str(directory / 'MODEL' / '1'))}` makes one"


def _scan_model(model: Path, scan: Scan) -> None:
    """Add one entry's versions to `scan`, or what is odd about it."""
    if not model.is_dir():
        scan.oddities.append(f"{model} is not a directory of versions")
        return
    if not MODEL_NAME.fullmatch(model.name):
        scan.oddities.append(f"{model} is no model: its name is not [a-z0-9][a-z0-9._-]*, at most 128 characters")
        return
    versions = [path for path in _entries(model) if path.name not in (LABELS_FILE, ADAPTERS_DIR)]
    if not versions:
        scan.oddities.append(f"{model} has no versions")
    for path in versions:
        if VERSION.fullmatch(path.name) and path.is_dir():
            scan.candidates.append(Candidate(model.name, int(path.name), path))
        else:
            scan.oddities.append(f"{path} is not a directory named by a version, 1 or more")


def _entries(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if not path.name.startswith("."))
