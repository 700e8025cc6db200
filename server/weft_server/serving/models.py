"""The models of a server by name and version: which there are, how they stand, and which one a request means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft_proto.tasks import TASKS
from weft_proto.v1 import common_pb2, model_pb2
from weft_server.errors import InvalidRequest, ModelNotFound, ModelNotReady

if TYPE_CHECKING:
    from pathlib import Path

    from weft_server.serving.model import Model

LOADING_RETRY_S = 5.0
# A refusal names no more models than this.
MAX_NAMES = 10


@dataclass(slots=True)
class Entry:
    """One version of one model and how it stands."""

    name: str
    version: int
    directory: Path
    state: model_pb2.ModelState.ValueType = model_pb2.MODEL_STATE_LOADING
    error: str = ""
    # The task, as soon as it is known.
    task: int = common_pb2.TASK_UNSPECIFIED
    model: Model | None = None
    # Whether threads of a refused model did not end.
    is_stuck: bool = False


class Models:
    """All entries. Written by the loader, read by servicers, on the event loop."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = sorted(entries, key=lambda entry: (entry.name, entry.version))

    def find(self, selector: common_pb2.ModelSelector) -> Entry:
        """The entry that a selector with a name means. There are three cases.

        1. It has a version: that one.
        2. It has none, and versions are ready: the highest of those.
        3. It has none, and no version is ready: the highest.
        """
        if not selector.name:
            raise InvalidRequest("model.name", "is required", "MODEL_REQUIRED")
        if selector.HasField("version") and not selector.version:
            raise InvalidRequest("model.version", "must be at least 1, not 0")
        versions = [entry for entry in self.entries if entry.name == selector.name]
        if not versions:
            raise ModelNotFound(f"there is no model {selector.name[:128]!r}; there are {self._names()}")
        if not selector.HasField("version"):
            return max(versions, key=lambda entry: (entry.state == model_pb2.MODEL_STATE_READY, entry.version))
        for entry in versions:
            if entry.version == selector.version:
                return entry
        raise ModelNotFound(f"model {selector.name!r} has no version {selector.version}")

    def resolve(self, selector: common_pb2.ModelSelector, task: common_pb2.Task.ValueType) -> Model:
        """Return the ready model that shall answer a request of `task`. Raises RequestError when there is none."""
        if selector.HasField("version") and not selector.name:
            raise InvalidRequest("model.name", "is required with a version", "MODEL_REQUIRED")
        model = self._ready(self.find(selector) if selector.name else self._only(task))
        if model.manifest.task != task:
            has, wants = TASKS[model.manifest.task].name, TASKS[task].name
            raise InvalidRequest("model.name", f"{model.name!r} is for {has}, not {wants}", "WRONG_INPUT_KIND")
        return model

    def writer(self, selector: common_pb2.ModelSelector) -> Model:
        """Return the ready model that a selector names, which produces text. Raises RequestError when there is none."""
        model = self._ready(self.find(selector))
        if not TASKS[model.manifest.task].writes_text:
            why = f"{model.name!r} is for {TASKS[model.manifest.task].name}, and produces no text"
            raise InvalidRequest("model.name", why, "WRONG_INPUT_KIND")
        return model

    def _ready(self, entry: Entry) -> Model:
        if entry.state == model_pb2.MODEL_STATE_FAILED:
            raise ModelNotReady(f"model {entry.name!r} version {entry.version} was refused: {entry.error}")
        if entry.model is None:
            raise ModelNotReady(f"model {entry.name!r} version {entry.version} is loading", LOADING_RETRY_S)
        return entry.model

    def _only(self, task: common_pb2.Task.ValueType) -> Entry:
        """The one model of a task, at its highest ready version."""
        ready = [entry for entry in self.entries if entry.model and entry.model.manifest.task == task]
        names = sorted({entry.name for entry in ready})
        if len(names) > 1:
            raise InvalidRequest("model.name", f"is required: one of {', '.join(names)}", "MODEL_REQUIRED")
        if names:
            return ready[-1]
        if any(entry.state == model_pb2.MODEL_STATE_LOADING for entry in self.entries):
            raise ModelNotReady("models are loading", LOADING_RETRY_S)
        self._tell_of_refused(task)
        raise ModelNotFound(f"there is no model for {TASKS[task].name}; there are {self._names()}")

    def _tell_of_refused(self, task: common_pb2.Task.ValueType) -> None:
        """Raise ModelNotReady if a model that was refused is for `task`, or may be."""
        refused = [entry for entry in self.entries if entry.state == model_pb2.MODEL_STATE_FAILED]
        known = [entry for entry in refused if entry.task == task]
        unknown = [entry for entry in refused if entry.task == common_pb2.TASK_UNSPECIFIED]
        entry = next(iter(known + unknown), None)
        if entry is None:
            return
        may = "" if known else ", whose task is not known,"
        who = f"model {entry.name!r} version {entry.version}{may} was refused"
        raise ModelNotReady(f"no model for {TASKS[task].name} is ready: {who}: {entry.error}")

    def _names(self) -> str:
        names = sorted({entry.name for entry in self.entries})
        more = [f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
        return ", ".join(names[:MAX_NAMES] + more)
