"""Labels that a repository states for a model: `MODEL/labels.json`, beside its versions.

{"stable": 1, "canary": {"version": 2, "share": 0.1}}
"""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

from weft_server.bundle.repository import LABELS_FILE, RepositoryError
from weft_server.errors import InvalidRequest
from weft_server.models.version_labels import CANARY, STABLE, VersionLabels

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

# A file of labels is not longer than this.
MAX_BYTES = 64 * 1024


def read_labels(model: Path) -> VersionLabels | None:
    """Return what the file in a model's folder states, or None if there is no such file.

    Raises:
        RepositoryError: the file cannot be read, or states something else.
    """
    path = model / LABELS_FILE
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would wait for ever
            raise RepositoryError(f"{path} is no file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise RepositoryError(f"{path} has more than {MAX_BYTES:,} bytes")
        return _labels(json.loads(content.decode()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RepositoryError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RepositoryError(f"{path} is no JSON: {error}") from error
    except (TypeError, InvalidRequest) as error:
        raise RepositoryError(
            f'{path} is not {{"stable": 1, "canary": {{"version": 2, "share": 0.1}}}}: {error}'
        ) from error


def restrict(labels: VersionLabels, versions: Collection[int]) -> VersionLabels:
    """Return the labels that are on some of these versions."""
    for version in (labels.stable, labels.canary):
        if version is not None and version not in versions:
            labels = labels.without(version)
    return labels


def _labels(stated: Any) -> VersionLabels:
    if not isinstance(stated, dict) or stated.keys() - {STABLE, CANARY}:
        raise TypeError(f"it has other fields than {STABLE} and {CANARY}")
    labels = VersionLabels()
    if STABLE in stated:
        labels = labels.put(STABLE, _version(stated[STABLE]))
    if CANARY in stated:
        canary = stated[CANARY]
        if not isinstance(canary, dict) or canary.keys() - {"version", "share"}:
            raise TypeError(f"{CANARY} has other fields than version and share")
        share = canary.get("share", 0)
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise TypeError("share is no number")
        labels = labels.put(CANARY, _version(canary.get("version")), share)
    return labels


def _version(stated: Any) -> int:
    if isinstance(stated, bool) or not isinstance(stated, int) or stated < 1:
        raise TypeError("a version is a whole number, 1 or more")
    return stated
