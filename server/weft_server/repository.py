"""The model repository: which bundles lie in `<repository>/<model>/<version>/`. Nothing in them is opened here."""

import re
from pathlib import Path
from typing import NamedTuple

MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


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
    """The repository cannot be read at all."""


def scan_repository(repository: Path) -> Scan:
    """List a repository. Names that start with a dot are left alone: version control and mounts keep theirs there.

    Raises:
        RepositoryError: it is missing, no directory, or not readable.
    """
    candidates, oddities = [], []
    try:
        for model in _entries(repository):
            if not model.is_dir():
                oddities.append(f"{model} is not a directory of versions")
            elif not MODEL_NAME.fullmatch(model.name):
                oddities.append(f"{model} is no model: its name is not [a-z0-9][a-z0-9._-]*, at most 128 characters")
            else:
                versions = _entries(model)
                bundles = [path for path in versions if _VERSION.fullmatch(path.name) and path.is_dir()]
                candidates += [Candidate(model.name, int(path.name), path) for path in bundles]
                oddities += [
                    f"{path} is not a directory named by a version, 1 or more"
                    for path in versions
                    if path not in bundles
                ]
                if not versions:
                    oddities.append(f"{model} has no versions")
    except OSError as error:
        raise RepositoryError(f"{error.filename or repository}: {error.strerror}") from error
    return Scan(sorted(candidates), oddities)


def _entries(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if not path.name.startswith("."))
