"""Watches the repository: versions that come are loaded, those that go are unloaded, and labels follow their file.

Nothing is believed before two looks have seen the same. So a folder that is being copied is not loaded.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from weft_proto.bundle_rules import MANIFEST_FILE
from weft_proto.v1 import model_pb2
from weft_server.bundle.files import fingerprint_of
from weft_server.bundle.repository import RepositoryError, scan_repository
from weft_server.errors import RequestError
from weft_server.lifecycle.labels_file import read_labels, restrict
from weft_server.models.version_labels import VersionLabels

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from weft_server.bundle.files import Print
    from weft_server.lifecycle.lifecycle import Lifecycle
    from weft_server.models.registry import ModelRegistry

    Key = tuple[str, int]

LOOK_S = 2.0
_log = structlog.get_logger(__name__)


class _Stated(NamedTuple):
    """The labels that a model's file states, and which of their versions are there."""

    labels: VersionLabels
    there: frozenset[int]


class _RepositoryLook(NamedTuple):
    """What a look has seen: whole bundles, folders that are there, and the labels of models that state some.

    `names` are the models that have been listed. `faults` says by model why its labels cannot be read: nothing comes to
    such a model.
    """

    prints: dict[Key, Print]
    folders: set[Key]
    names: set[str]
    labels: dict[str, VersionLabels]
    faults: dict[str, str]


class RepositoryWatcher:
    """One for the server. To be used on the event loop's thread."""

    def __init__(self, lifecycle: Lifecycle, models: ModelRegistry, repository: Path) -> None:
        self._lifecycle = lifecycle
        self._models = models
        self._repository = repository
        self._last = _RepositoryLook({}, set(), set(), {}, {})
        # Bundles as they were when they were loaded or refused. They are not tried again, unless they change. So one
        # that an operator has unloaded stays away, also if its folder goes for a while.
        self.tried: dict[Key, Print] = {}
        # Whose labels were set last. Those that an operator moves stay, until the file says something else.
        self._stated: dict[str, _Stated] = {}
        # Changes that are under way.
        self.changing: dict[Key, asyncio.Task[None]] = {}
        self._complaint = ""

    async def watch(self) -> None:
        """Look for ever. The first look is at once: what is there then is known, and who unloads it is believed."""
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - a bug here is no reason to follow nothing any more
                _log.exception("watch failed")
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Look once, and begin what this look and the one before agree on."""
        known = {(entry.name, entry.version): entry.directory for entry in self._models.entries}
        try:
            look = await asyncio.to_thread(_look, self._repository, known)
        except (RepositoryError, OSError) as error:
            # A repository that is gone or empty for a moment is no reason to stop serving what it held.
            self._complain(str(error))
            return
        self._complain("; ".join(look.faults.values()))
        for key in known.keys() & look.prints.keys():
            entry = self._models.at(*key)
            if entry and entry.answers:
                # Its files are not loaded anew. Who unloads it does so as they are now.
                self.tried[key] = look.prints[key]
            self.tried.setdefault(key, look.prints[key])
        come = [key for key, seen in look.prints.items() if self._last.prints.get(key) == seen != self.tried.get(key)]
        there = look.folders | self._last.folders
        gone = [key for key in self.tried if key not in there and self._models.at(*key)]
        before, self._last = self._last, look
        changes = {key: self._load(key, look) for key in come if not self._answers(key) and key[0] not in look.faults}
        changes |= {key: self._unload(key) for key in gone}
        self.begin(changes)
        self._label(look, before)

    async def settled(self) -> None:
        """Wait until what looks have begun is done."""
        while self.changing:
            await asyncio.wait(self.changing.values())

    def begin(self, changes: dict[Key, Coroutine[Any, Any, None]]) -> None:
        """Make changes side by side. No look waits for them: a graph can also loop for ever."""
        for key, change in changes.items():
            if key in self.changing:
                change.close()
                continue
            self.changing[key] = task = asyncio.create_task(change)
            task.add_done_callback(partial(self._made, key))

    def _made(self, key: Key, task: asyncio.Task[None]) -> None:
        del self.changing[key]
        if not task.cancelled() and (error := task.exception()):
            _log.error("watch failed", model=key[0], version=key[1], exc_info=error)

    async def _load(self, key: Key, look: _RepositoryLook) -> None:
        name, version = key
        labels = look.labels.get(name, VersionLabels())
        label = next(iter(labels.of(version)), "")
        if await self._done(self._lifecycle.load(name, version, label, labels.share if label == "canary" else None)):
            self.tried[key] = look.prints[key]

    async def _unload(self, key: Key) -> None:
        if await self._done(self._lifecycle.unload(*key)):
            del self.tried[key]

    async def _done(self, change: Coroutine[object, object, object]) -> bool:
        """Make a change. Returns whether there is nothing to do again at the next look."""
        try:
            await change
        except RequestError as error:
            _log.warning("watch", why=error.message)
            return error.retry_after_s is None
        return True

    def _answers(self, key: Key) -> bool:
        entry = self._models.at(*key)
        return entry is not None and entry.state != model_pb2.MODEL_STATE_FAILED

    def _label(self, look: _RepositoryLook, before: _RepositoryLook) -> None:
        """Set the labels that files state, where these have changed, or a version that they name has come."""
        for name in (look.names & before.names) - look.faults.keys():
            labels = look.labels.get(name, VersionLabels())
            if labels != before.labels.get(name, VersionLabels()):
                continue
            versions = [entry.version for entry in self._models.versions(name)]
            there = frozenset(version for version in versions if labels.of(version))
            last = self._stated.get(name, _Stated(VersionLabels(), frozenset()))
            self._stated[name] = _Stated(labels, there)
            if labels != last.labels or there - last.there:
                fit = restrict(labels, versions)
                self._models.set_labels(name, fit)
                _log.info("labels", model=name, stable=fit.stable, canary=fit.canary, share=fit.share)

    def _complain(self, why: str) -> None:
        """Log what is wrong with the repository, once until it changes."""
        if why and why != self._complaint:
            _log.error("repository", why=why)
        self._complaint = why


def _look(repository: Path, known: dict[Key, Path]) -> _RepositoryLook:
    """Look at the repository, and at the folders of versions that are known. Raises RepositoryError or OSError."""
    scan = scan_repository(repository)
    folders = {(each.name, each.version) for each in scan.candidates}
    # What a scan does not list may be there all the same, but not readable now.
    folders |= {key for key, directory in known.items() if key not in folders and directory.exists()}
    prints = {
        (each.name, each.version): fingerprint_of(each.directory)
        for each in scan.candidates
        if (each.directory / MANIFEST_FILE).exists()  # else it is no bundle yet
    }
    names = {each.name for each in scan.candidates}
    labels, faults = {}, {}
    for name in sorted(names):
        try:
            stated = read_labels(repository / name)
        except RepositoryError as error:
            faults[name] = str(error)
        else:
            if stated is not None:
                labels[name] = stated
    return _RepositoryLook({key: seen for key, seen in prints.items() if seen}, folders, names, labels, faults)
