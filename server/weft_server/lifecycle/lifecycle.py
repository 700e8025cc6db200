"""Keeps the models while the server serves: loads, swaps and unloads them, labels them, puts them to sleep, wakes them.

One change of a model comes after the other. A model that is loaded is tried before anybody finds it. One that leaves
finishes what it has. A bundle that is refused changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from weft_proto.v1 import model_pb2
from weft_server.bundle.repository import RepositoryError, scan_repository
from weft_server.errors import BundleRefused, Draining, ModelNotFound, ModelNotReady, RequestError
from weft_server.lifecycle.waking import Waking
from weft_server.loading.loader import STOP_S, hold_place, load_entry
from weft_server.loading.model_card import card_of
from weft_server.models.registry import LOADING_RETRY_S, RegistryEntry
from weft_server.models.version_labels import STABLE, VersionLabels, check_label, check_share
from weft_server.process.garbage import search_all
from weft_server.runtime.memory import give_back

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from weft_server.bundle.repository import Candidate
    from weft_server.config import ServerConfig
    from weft_server.models.model import Model
    from weft_server.models.placement import Placement
    from weft_server.models.registry import ModelRegistry
    from weft_server.telemetry.metrics import Metrics

Result = TypeVar("Result")
_log = structlog.get_logger(__name__)
# How often it is looked for models that nobody asks for, or more often if they sleep sooner.
DOZE_S = 1.0


class Lifecycle:
    """One for the server. To be used on the event loop's thread."""

    def __init__(
        self,
        models: ModelRegistry,
        config: ServerConfig,
        metrics: Metrics,
        *,
        changed: Callable[[str], Awaitable[None]],
        settled: Callable[[], Awaitable[None]],
        num_places: int,
        placement: Placement | None = None,
    ) -> None:
        """Models load `num_places` at a time. Without a `placement` each has the devices for itself.

        `changed` is called with a name when its model answers or does so no more, `settled` when one has been loaded.
        """
        self._models = models
        self._config = config
        self._metrics = metrics
        self._changed = changed
        self._settled = settled
        self._placement = placement
        self._places = asyncio.Semaphore(num_places)
        self.locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.changes: set[asyncio.Task[Any]] = set()
        # Of those who load, until they give their place up.
        self._holding: set[asyncio.Task[None]] = set()
        self._is_closed = False
        # Whether threads were left behind, whose work nobody needs.
        self.is_stuck = False

    async def load(
        self, name: str, version: int | None = None, label: str = "", share: float | None = None
    ) -> RegistryEntry:
        """Make a version answer, by default the highest in the repository, and put a label on it in the same moment.

        Raises:
            RequestError: ModelNotFound, BundleRefused, or InvalidRequest for the label. Nothing has changed.
        """
        if label:
            check_label(label, "version_label")
        check_share(label, share)
        candidate = await self._candidate(name, version)
        return await self._change(name, self._load(candidate, label, share))

    async def unload(self, name: str, version: int) -> None:
        """Take a version away, and return when its memory is free. Raises ModelNotFound if it is not there."""
        if self._models.is_leaving(name, version):
            await self._change(name, asyncio.sleep(0))  # after the one that is under way
            return
        self._there(name, version)
        await self._change(name, self._unload(name, version))

    async def swap(self, name: str, version: int | None = None) -> tuple[RegistryEntry, list[int]]:
        """Let one version be the only one, and return it and those that left, when their memory is free.

        Raises:
            RequestError: ModelNotFound or BundleRefused. Nothing has changed.
        """
        candidate = await self._candidate(name, version)
        return await self._change(name, self._swap(candidate))

    async def label(self, name: str, label: str, version: int | None, share: float | None = None) -> None:
        """Put a label on a version, or with None take it away.

        Raises:
            RequestError: ModelNotFound, or InvalidRequest for the label.
        """
        check_label(label, "version_label")
        if not self._models.versions(name):
            raise ModelNotFound(f"there is no model {name[:128]!r}")
        await self._change(name, self._label(name, label, version, share))

    async def doze(self) -> None:
        """For ever, put models to sleep that nobody asks for."""
        while True:
            await asyncio.sleep(min(DOZE_S, self._config.idle_unload_s / 4))
            for entry in self._models.entries:
                if self._idle_model(entry) and not self.is_changing(entry.name):
                    try:
                        await self._change(entry.name, self._sleep(entry))
                    except Exception:  # noqa: BLE001 - a bug with one model is no reason to keep the others awake
                        _log.exception("sleep failed", model=entry.name, version=entry.version)

    def is_changing(self, name: str) -> bool:
        """Whether a change of a model is under way."""
        return self.locks[name].locked()

    def close(self) -> None:
        """End what is going on, for the server leaves. Who waits for it gets Draining."""
        self._is_closed = True
        self.is_stuck |= bool(self.changes)
        for task in self.changes:
            task.cancel()

    async def _candidate(self, name: str, version: int | None) -> Candidate:
        """Find a bundle among those that the repository holds. Nothing that a caller sent becomes part of a path."""
        try:
            scan = await asyncio.to_thread(scan_repository, self._config.repository)
        except RepositoryError as error:
            _log.error("repository", why=str(error))
            raise BundleRefused("the repository cannot be read, the server's log says why") from error
        versions = [each for each in scan.candidates if each.name == name and version in {None, each.version}]
        if not versions:
            what = f"model {name[:128]!r}" + ("" if version is None else f" version {version}")
            raise ModelNotFound(f"the repository has no {what}")
        return versions[-1]

    async def _change(self, name: str, change: Coroutine[Any, Any, Result]) -> Result:
        """Make a change of a model after those before it. Once it has begun it goes on, even if its caller goes."""
        lock = self.locks[name]
        try:
            await lock.acquire()
        except asyncio.CancelledError:
            change.close()
            raise

        def ended(task: asyncio.Task[Any]) -> None:
            lock.release()
            self.changes.discard(task)
            # Taken from the task even if nobody waits for it any more. What is no bug has been said then.
            error = None if task.cancelled() else task.exception()
            if error and not isinstance(error, RequestError):
                _log.error("change failed", model=name, exc_info=error)

        task = asyncio.create_task(change)
        self.changes.add(task)
        task.add_done_callback(ended)
        if self._is_closed:
            task.cancel()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Draining("the server is draining and changes no models") from None
            raise

    def _there(self, name: str, version: int) -> RegistryEntry:
        """Return a version that is there. Raises RequestError while the server still loads it, or if there is none."""
        entry = self._models.at(name, version)
        if entry is None:
            raise ModelNotFound(f"no version {version} of model {name[:128]!r} is loaded")
        if entry.state == model_pb2.MODEL_STATE_LOADING:
            raise ModelNotReady(f"model {name!r} version {version} is loading", LOADING_RETRY_S)
        return entry

    async def _load(self, candidate: Candidate, label: str, share: float | None) -> RegistryEntry:
        self._labelled(candidate, label, share)  # refused before it is loaded
        entry = await self._answering(candidate)
        self._models.put(entry)
        await self._changed(candidate.name)
        # Meanwhile the repository's file may have moved labels.
        self._models.set_labels(candidate.name, self._labelled(candidate, label, share))
        return entry

    def _labelled(self, candidate: Candidate, label: str, share: float | None) -> VersionLabels:
        """The labels of a model of now, with one put on a version. Raises InvalidRequest if it cannot bear that."""
        labels = self._models.labels(candidate.name)
        return labels.put(label, candidate.version, share) if label else labels

    async def _unload(self, name: str, version: int) -> None:
        await self._leave(self._there(name, version))

    async def _swap(self, candidate: Candidate) -> tuple[RegistryEntry, list[int]]:
        name = candidate.name
        others = [self._there(name, each.version) for each in self._models.versions(name)]
        others = [each for each in others if each.version != candidate.version]
        entry = await self._answering(candidate)
        self._models.put(entry)
        had_stable = self._models.labels(name).version(STABLE) is not None
        self._models.set_labels(name, VersionLabels(stable=candidate.version if had_stable else None))
        await self._changed(name)
        await asyncio.gather(*map(self._leave, others))
        return entry, [each.version for each in others]

    async def _label(self, name: str, label: str, version: int | None, share: float | None) -> None:
        if version is not None and not self._there(name, version).answers:
            raise BundleRefused(f"model {name!r} version {version} was refused, and bears no label")
        self._models.set_labels(name, self._models.labels(name).put(label, version, share))

    async def _answering(self, candidate: Candidate) -> RegistryEntry:
        """Return an entry that answers: the one that is there, or a new one, which nobody finds yet."""
        there = self._models.at(candidate.name, candidate.version)
        if there:
            self.is_stuck |= there.is_stuck
        if there and self._there(there.name, there.version).answers:
            entry, why = there, await self._wake(there)
        else:
            entry = await self._loaded(*candidate)
            why = entry.error
            if why and not there:
                self._metrics.forget(entry.name, entry.version)
        if why:
            raise BundleRefused(f"model {entry.name!r} version {entry.version} is refused: {why}")
        return entry

    async def _loaded(self, *which: Any) -> RegistryEntry:
        """Load a bundle. The entry has its model, or says why not."""
        entry = RegistryEntry(*which)
        await self._places.acquire()
        load = asyncio.create_task(load_entry(entry, self._config, self._metrics, self._placement, gives_way=True))
        holding = asyncio.create_task(hold_place(self._places, entry, load))
        self._holding.add(holding)
        holding.add_done_callback(self._holding.discard)
        await load
        self.is_stuck |= entry.is_stuck
        if entry.model:
            await self._settled()
            # That may have taken longer than a model may be idle.
            entry.model.be_idle()
        return entry

    async def _leave(self, entry: RegistryEntry) -> None:
        """Let an entry go. Nobody finds it from now on, and its calls are finished."""
        self._models.set_labels(entry.name, self._models.labels(entry.name).without(entry.version))
        self.is_stuck |= entry.is_stuck
        entry.state = model_pb2.MODEL_STATE_DRAINING
        await self._changed(entry.name)
        if entry.model:
            await self._finish_calls(entry.model)
            await self._stop(entry, entry.model)
        self._models.remove(entry)
        self._metrics.forget(entry.name, entry.version)
        _log.info("model unloaded", model=entry.name, version=entry.version)

    async def _finish_calls(self, model: Model) -> None:
        """Let a model's calls be finished, for as long as those of a server that drains."""
        try:
            await asyncio.wait_for(model.unheld(), self._config.drain_timeout_s)
        except TimeoutError:
            _log.warning("unload timeout, ending the rest", model=model.name, version=model.version)
            why = f"model {model.name!r} version {model.version} was unloaded"
            model.cancel_all(lambda: ModelNotReady(why, LOADING_RETRY_S))
            with suppress(TimeoutError):
                await asyncio.wait_for(model.unheld(), STOP_S)

    async def _stop(self, entry: RegistryEntry, model: Model) -> None:
        """Stop what an entry's model runs, and free its memory."""
        if not await asyncio.to_thread(model.stop, STOP_S):
            _log.error("unloaded with threads that are stuck", model=entry.name, version=entry.version)
            self.is_stuck = True
        entry.model = None
        search_all()
        await asyncio.to_thread(give_back)

    def _idle_model(self, entry: RegistryEntry) -> Model | None:
        """The model of an entry, if it may sleep."""
        model = entry.model if entry.state == model_pb2.MODEL_STATE_READY else None
        return model if model is not None and model.idle_s >= self._config.idle_unload_s else None

    async def _sleep(self, entry: RegistryEntry) -> None:
        """Free an entry's memory. The next request waits until it is loaded again."""
        if (model := self._idle_model(entry)) is None:
            return
        card = await card_of(model, self._config)
        if self._idle_model(entry) is not model:  # somebody came meanwhile
            return
        entry.card, entry.manifest = card, model.manifest
        entry.state = model_pb2.MODEL_STATE_SLEEPING
        model.metrics.sleep()
        who = f"model {entry.name!r} version {entry.version}"
        wake = partial(self._change_awake, entry)
        entry.wake = Waking(who, wake, self._config.max_queued_requests, self._config.weights)
        await self._stop(entry, model)
        _log.info("model asleep", model=entry.name, version=entry.version)

    async def _change_awake(self, entry: RegistryEntry) -> str:
        return await self._change(entry.name, self._wake(entry))

    async def _wake(self, entry: RegistryEntry) -> str:
        """Load an entry that sleeps, of the files that are there now. Returns why it failed, or nothing."""
        if entry.state != model_pb2.MODEL_STATE_SLEEPING:
            return ""
        loaded = await self._loaded(entry.name, entry.version, entry.directory)
        entry.error = loaded.error
        if loaded.model:
            entry.model, entry.state, entry.task = loaded.model, model_pb2.MODEL_STATE_READY, loaded.task
            if loaded.model.manifest != entry.manifest:
                _log.warning("model woke with other files", model=entry.name, version=entry.version)
            entry.wake = entry.card = entry.manifest = None
        return entry.error
