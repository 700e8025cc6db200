"""Judges a call by its metadata, before its message is read: where it stands, and whether its model lets more wait.

Whoever reads, parses and then refuses a message has done most of the work of an answer. In a flood that is what the
machine would be busy with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1 import common_pb2, model_pb2
from weft_server.admission.message_limits import MAX_TEXT_BYTES
from weft_server.errors import InvalidRequest, Overloaded
from weft_server.sequence import Priority

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from weft_server.models.model import Model
    from weft_server.models.registry import ModelRegistry, RegistryEntry
    from weft_server.models.request_context import RequestContext

# Metadata that names the model which the message names too. Without it, a call can be judged before its message is
# read only where one model alone is for it.
MODEL_KEY = "weft-model"
PRIORITY_KEY = "weft-priority"
MAX_TENANT = 64
# A request holds pictures in its messages alone. Of other methods the tasks say whether it holds a file.
_GENERATES = (common_pb2.TASK_GENERATE,)
PRIORITIES = {priority.name.lower(): priority for priority in Priority}


class EarlyAdmission:
    """Looks at the models."""

    def __init__(self, models: ModelRegistry, tenant_key: str | None = None) -> None:
        """`tenant_key` is the metadata that names the tenant of a call which nobody has identified. None: none does."""
        self._models = models
        self._tenant_key = tenant_key

    def admit(
        self, call: RequestContext, tasks: Collection[common_pb2.Task.ValueType], metadata: Iterable[tuple[str, Any]]
    ) -> None:
        """Note where a call stands. `tasks` are those of the models that may answer it. None: its message says which.

        Raises:
            RequestError: the call would be refused whatever its message says. It is counted under its model.
        """
        named = ""
        for key, value in metadata:
            if key == MODEL_KEY:
                named = value
            elif key == PRIORITY_KEY:
                call.priority = _priority(value)
            elif key == self._tenant_key and call.is_known and not call.tenant:
                call.tenant = _tenant(key, value)
        if named:
            call.allowed_models.check_shown(named)
        if tasks and call.account:
            call.account.check()
        self._check_room(call, tasks, named)
        able = self._able(call, tasks, named) if tuple(tasks) == _GENERATES else []
        if able and not any(entry.may_see for entry in able):
            call.max_bytes = MAX_TEXT_BYTES

    def _check_room(self, call: RequestContext, tasks: Collection[common_pb2.Task.ValueType], named: str) -> None:
        """Raise Overloaded if every version of the model that a call means lets no more wait."""
        refusal = None
        for model in self._meant(call, tasks, named):
            try:
                model.engine.check_open(call.standing)
            except Overloaded as error:
                refusal, call.metrics = error, model.metrics
            else:
                call.metrics = None
                return
        if refusal:
            raise refusal

    def _meant(self, call: RequestContext, tasks: Collection[common_pb2.Task.ValueType], named: str) -> list[Model]:
        """The versions of the model that a call means. None if it may be one of several, or one that sleeps."""
        meant = self._able(call, tasks, named)
        models = [entry.model for entry in meant if entry.model and entry.state == model_pb2.MODEL_STATE_READY]
        return models if len({entry.name for entry in meant}) == 1 and len(models) == len(meant) else []

    def _able(
        self, call: RequestContext, tasks: Collection[common_pb2.Task.ValueType], named: str
    ) -> list[RegistryEntry]:
        """All versions that a call may mean."""
        able = [entry for entry in self._models.entries if entry.answers and named in ("", entry.name)]
        return [entry for entry in able if entry.task in tasks and call.allowed_models.shows(entry.name)]


def _priority(value: str) -> Priority:
    try:
        return PRIORITIES[value]
    except KeyError:
        names = ", ".join(PRIORITIES)
        raise InvalidRequest(PRIORITY_KEY, f"must be one of {names}, not {value[:32]!r}") from None


def _tenant(key: str, value: str) -> str:
    if not 1 <= len(value) <= MAX_TENANT or not value.isprintable():
        raise InvalidRequest(key, f"must be 1 to {MAX_TENANT} printable characters")
    return value
