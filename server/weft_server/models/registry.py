"""The models of a server by name and version: which there are, how they stand, and which one a request means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft_proto.sight import sees
from weft_proto.tasks import TASKS
from weft_proto.v1 import common_pb2, model_pb2
from weft_server.errors import InvalidRequest, ModelNotFound, ModelNotReady
from weft_server.models.version_labels import CANARY, VersionLabels

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from weft_proto.v1 import bundle_pb2
    from weft_server.models.allowed_models import AllowedModels
    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.sequence import Standing

LOADING_RETRY_S = 5.0
# A refusal names no more models than this.
MAX_NAMES = 10
_ANSWERING = {model_pb2.MODEL_STATE_READY, model_pb2.MODEL_STATE_SLEEPING}
_NO_LABELS = VersionLabels()


@dataclass(slots=True)
class RegistryEntry:
    """One version of one model and how it stands."""

    name: str
    version: int
    directory: Path
    state: model_pb2.ModelState.ValueType = model_pb2.MODEL_STATE_LOADING
    error: str = ""
    # The task, as soon as it is known.
    task: common_pb2.Task.ValueType = common_pb2.TASK_UNSPECIFIED
    model: Model | None = None
    # Whether threads of a refused model did not end.
    is_stuck: bool = False
    # While it sleeps: what wakes it, what there is to say of it, and of which files it was.
    wake: Callable[[Standing], Awaitable[None]] | None = None
    card: model_pb2.Model | None = None
    manifest: bundle_pb2.BundleManifest | None = None

    def __post_init__(self) -> None:
        if self.model:
            self.task = self.model.manifest.task

    @property
    def answers(self) -> bool:
        """Whether requests may be sent to it: it is ready, or will be when it is woken."""
        return self.state in _ANSWERING

    @property
    def may_see(self) -> bool:
        """Whether prompts may hold pictures, or that is not known yet."""
        manifest = self.model.manifest if self.model else self.manifest
        return manifest is None or sees(manifest)


class ModelRegistry:
    """All entries. Written by who loads and unloads, read by servicers, on the event loop."""

    def __init__(self, entries: list[RegistryEntry]) -> None:
        self.entries = sorted(entries, key=_place)
        # By name. A label is on a version that is there.
        self._labels: dict[str, VersionLabels] = {}

    def versions(self, name: str) -> list[RegistryEntry]:
        """Return the versions of a model that do not leave, lowest first."""
        return [entry for entry in self.entries if entry.name == name and entry.state != model_pb2.MODEL_STATE_DRAINING]

    def at(self, name: str, version: int) -> RegistryEntry | None:
        """Return one version, if it is there and does not leave."""
        return next((entry for entry in self.versions(name) if entry.version == version), None)

    def is_leaving(self, name: str, version: int) -> bool:
        """Whether a version is there no more, and its last calls are."""
        leaving = [entry for entry in self.entries if entry.state == model_pb2.MODEL_STATE_DRAINING]
        return any((name, version) == (entry.name, entry.version) for entry in leaving)

    def put(self, entry: RegistryEntry) -> None:
        """Add an entry, in place of one of the same version that was refused."""
        old = self.at(entry.name, entry.version)
        self.entries = sorted([*(each for each in self.entries if each is not old), entry], key=_place)

    def remove(self, entry: RegistryEntry) -> None:
        """Forget an entry."""
        self.entries = [each for each in self.entries if each is not entry]

    def labels(self, name: str) -> VersionLabels:
        """Return the labels of a model's versions."""
        return self._labels.get(name, _NO_LABELS)

    def set_labels(self, name: str, labels: VersionLabels) -> None:
        """Replace the labels of a model's versions."""
        if labels == _NO_LABELS:
            self._labels.pop(name, None)
        else:
            self._labels[name] = labels

    def find(
        self, selector: common_pb2.ModelSelector, allowed: AllowedModels, request_id: str | None = None
    ) -> RegistryEntry:
        """The entry that a selector with a name means, if it is allowed. There are three cases.

        1. It has a version: that one.
        2. It has a label: the version that bears it.
        3. It has neither: see `_default`.
        """
        if not selector.name:
            raise InvalidRequest("model.name", "is required", "MODEL_REQUIRED")
        if selector.HasField("version") and not selector.version:
            raise InvalidRequest("model.version", "must be at least 1, not 0")
        allowed.check(selector.name, selector.adapter)
        if not self.versions(selector.name):
            raise ModelNotFound(f"there is no model {selector.name[:128]!r}; there are {self._names(allowed)}")
        if selector.WhichOneof("version_choice") is None:
            return self._default(selector.name, request_id)
        version = selector.version
        if selector.HasField("version_label"):
            labelled = self.labels(selector.name).version(selector.version_label)
            if labelled is None:
                raise ModelNotFound(f"no version of model {selector.name!r} is {selector.version_label}")
            version = labelled
        if entry := self.at(selector.name, version):
            return entry
        raise ModelNotFound(f"model {selector.name!r} has no version {version}")

    def _default(self, name: str, request_id: str | None) -> RegistryEntry:
        """The version that a request means which names none.

        1. It is in the canary's share, and the canary answers: the canary.
        2. A version is stable: that one.
        3. The highest that answers and is no canary, else the highest.
        """
        labels = self.labels(name)
        if request_id is not None and labels.draws_canary(name, request_id):
            canary = self.at(name, labels.version(CANARY) or 0)
            if canary and canary.answers:
                return canary
        if labels.stable and (stable := self.at(name, labels.stable)):
            return stable
        versions = self.versions(name)
        others = [entry for entry in versions if entry.version != labels.canary] or versions
        return max(others, key=lambda entry: (entry.answers, entry.version))

    async def take(
        self, call: RequestContext, selector: common_pb2.ModelSelector, *tasks: common_pb2.Task.ValueType
    ) -> Model:
        """Take the model for a call that shall answer a request of one of `tasks`, and wake it if it sleeps.

        Where no name says which one, it is of the first task that has a model.

        Raises RequestError when there is none. The model stays until the call lets it go.
        """
        if selector.WhichOneof("version_choice") and not selector.name:
            field = f"model.{selector.WhichOneof('version_choice')}"
            raise InvalidRequest("model.name", f"is required with {field}", "MODEL_REQUIRED")

        def meant() -> RegistryEntry:
            if selector.name:
                entry = self.find(selector, call.allowed_models, call.request_id)
            else:
                entry = self._only(tasks, call)
                call.allowed_models.check(entry.name, selector.adapter)
            if entry.answers and entry.task not in tasks:
                has, wants = TASKS[entry.task].name, TASKS[tasks[0]].name
                raise InvalidRequest("model.name", f"{entry.name!r} is for {has}, not {wants}", "WRONG_INPUT_KIND")
            return entry

        return await _taken(call, meant, selector.adapter)

    async def take_writer(self, call: RequestContext, selector: common_pb2.ModelSelector) -> Model:
        """Do as `take` with the model that a selector names, which produces text."""

        def check(entry: RegistryEntry) -> None:
            if not TASKS[entry.task].writes_text:
                why = f"{entry.name!r} is for {TASKS[entry.task].name}, and produces no text"
                raise InvalidRequest("model.name", why, "WRONG_INPUT_KIND")

        return await self.take_named(call, selector, check)

    async def take_scorer(self, call: RequestContext, selector: common_pb2.ModelSelector) -> Model:
        """Do as `take` with the model that a selector names, which produces text, or a vector for each token."""

        def check(entry: RegistryEntry) -> None:
            if not TASKS[entry.task].writes_text and entry.task != common_pb2.TASK_EMBED_TEXT:
                why = f"{entry.name!r} is for {TASKS[entry.task].name}, and produces no text"
                raise InvalidRequest("model.name", why, "WRONG_INPUT_KIND")

        return await self.take_named(call, selector, check)

    async def take_named(
        self, call: RequestContext, selector: common_pb2.ModelSelector, check: Callable[[RegistryEntry], object]
    ) -> Model:
        """Do as `take` with the model that a selector names. `check` refuses what is not fit, before it wakes."""

        def meant() -> RegistryEntry:
            entry = self.find(selector, call.allowed_models, call.request_id)
            if entry.answers:
                check(entry)
            return entry

        return await _taken(call, meant, selector.adapter)

    def _only(self, tasks: tuple[common_pb2.Task.ValueType, ...], call: RequestContext) -> RegistryEntry:
        """The one model of the first of `tasks` that has any for its caller, at the version that `_default` says."""
        shown = [entry for entry in self.entries if call.allowed_models.shows(entry.name)]
        for task in tasks:
            names = {entry.name for entry in shown if entry.task == task and entry.answers}
            if len(names) > 1:
                raise InvalidRequest("model.name", f"is required: one of {', '.join(sorted(names))}", "MODEL_REQUIRED")
            if names:
                return self._default(names.pop(), call.request_id)
        task = tasks[0]
        if any(entry.state == model_pb2.MODEL_STATE_LOADING for entry in shown):
            raise ModelNotReady("models are loading", LOADING_RETRY_S)
        _tell_of_refused(shown, task)
        names_shown = self._names(call.allowed_models)
        raise ModelNotFound(f"there is no model for {TASKS[task].name}; there are {names_shown}")

    def _names(self, allowed: AllowedModels) -> str:
        here = [entry for entry in self.entries if entry.state != model_pb2.MODEL_STATE_DRAINING]
        names = sorted({entry.name for entry in here if allowed.shows(entry.name)})
        more = [f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
        return ", ".join(names[:MAX_NAMES] + more) or "none"


async def _taken(call: RequestContext, meant: Callable[[], RegistryEntry], adapter: str) -> Model:
    # What is meant may be another version after a wait.
    while (entry := meant()).state == model_pb2.MODEL_STATE_SLEEPING:
        assert entry.wake is not None, f"{entry.name} sleeps for ever. This is a bug."
        await entry.wake(call.standing)
    if entry.state == model_pb2.MODEL_STATE_FAILED or entry.model is None:
        raise not_ready(entry)
    model = entry.model
    call.take(model)
    await call.adapt(adapter)
    return model


def not_ready(entry: RegistryEntry | model_pb2.Model) -> ModelNotReady:
    """Return why a version does not answer."""
    which = f"model {entry.name!r} version {entry.version}"
    if entry.state == model_pb2.MODEL_STATE_FAILED:
        return ModelNotReady(f"{which} was refused: {entry.error}")
    return ModelNotReady(f"{which} is loading", LOADING_RETRY_S)


def _tell_of_refused(entries: list[RegistryEntry], task: common_pb2.Task.ValueType) -> None:
    """Raise ModelNotReady if a model that was refused is for `task`, or may be."""
    refused = [entry for entry in entries if entry.state == model_pb2.MODEL_STATE_FAILED]
    known = [entry for entry in refused if entry.task == task]
    unknown = [entry for entry in refused if entry.task == common_pb2.TASK_UNSPECIFIED]
    entry = next(iter(known + unknown), None)
    if entry is None:
        return
    may = "" if known else ", whose task is not known,"
    who = f"model {entry.name!r} version {entry.version}{may} was refused"
    raise ModelNotReady(f"no model for {TASKS[task].name} is ready: {who}: {entry.error}")


def _place(entry: RegistryEntry) -> tuple[str, int]:
    return entry.name, entry.version
