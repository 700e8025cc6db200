"""The services that tell which models there are, and that change it for admins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1 import admin_pb2, model_pb2
from weft_server.errors import InvalidRequest
from weft_server.loading.model_card import card_of
from weft_server.models.version_labels import CANARY

if TYPE_CHECKING:
    from weft_server.config import ServerConfig
    from weft_server.lifecycle.lifecycle import Lifecycle
    from weft_server.models.registry import ModelRegistry, RegistryEntry
    from weft_server.models.request_context import RequestContext


class ModelServicer:
    """ListModels and GetModel."""

    def __init__(self, models: ModelRegistry, config: ServerConfig) -> None:
        self._models, self._config = models, config

    async def list_models(self, call: RequestContext, _request: model_pb2.ListModelsRequest) -> Any:
        """Answer with every entry that the caller may ask, or of which it may ask an adapter."""
        entries = [entry for entry in self._models.entries if call.allowed_models.shows(entry.name)]
        listed = [_shown(await model_proto(entry, self._models, self._config), call) for entry in entries]
        return model_pb2.ListModelsResponse(models=listed)

    async def get_model(self, call: RequestContext, request: model_pb2.GetModelRequest) -> Any:
        """Answer with one entry."""
        entry = self._models.find(request.model, call.allowed_models)
        model = await model_proto(entry, self._models, self._config)
        return model_pb2.GetModelResponse(model=_shown(model, call))


class ModelAdminServicer:
    """LoadModel, UnloadModel, SwapModel and SetLabel."""

    def __init__(self, lifecycle: Lifecycle, models: ModelRegistry, config: ServerConfig) -> None:
        self._lifecycle, self._models, self._config = lifecycle, models, config

    async def load_model(self, _call: RequestContext, request: admin_pb2.LoadModelRequest) -> Any:
        """Answer when the model answers."""
        name, version = _which(request)
        entry = await self._lifecycle.load(name, version, request.version_label, _share(request))
        return admin_pb2.LoadModelResponse(model=await model_proto(entry, self._models, self._config))

    async def unload_model(self, _call: RequestContext, request: admin_pb2.UnloadModelRequest) -> Any:
        """Answer when the model's memory is free."""
        name, _ = _which(request)
        await self._lifecycle.unload(name, request.version)
        return admin_pb2.UnloadModelResponse()

    async def swap_model(self, _call: RequestContext, request: admin_pb2.SwapModelRequest) -> Any:
        """Answer when only the one version is left."""
        name, version = _which(request)
        entry, unloaded = await self._lifecycle.swap(name, version)
        model = await model_proto(entry, self._models, self._config)
        return admin_pb2.SwapModelResponse(model=model, unloaded=unloaded)

    async def set_label(self, _call: RequestContext, request: admin_pb2.SetLabelRequest) -> Any:
        """Answer when the label is set."""
        name, version = _which(request)
        await self._lifecycle.label(name, request.version_label, version, _share(request))
        return admin_pb2.SetLabelResponse()


async def model_proto(entry: RegistryEntry, models: ModelRegistry, config: ServerConfig) -> model_pb2.Model:
    """What there is to say of an entry."""
    proto = model_pb2.Model(name=entry.name, version=entry.version, task=entry.task)
    if entry.model:
        proto = await card_of(entry.model, config)
    elif entry.card:
        proto.CopyFrom(entry.card)
    proto.state, proto.error = entry.state, entry.error
    if entry is models.at(entry.name, entry.version):
        labels = models.labels(entry.name)
        proto.version_labels.extend(labels.of(entry.version))
        if CANARY in proto.version_labels:
            proto.canary_share = labels.share
    return proto


def _shown(model: model_pb2.Model, call: RequestContext) -> model_pb2.Model:
    """Leave out the adapters that a caller may not ask."""
    model.adapters[:] = [each for each in model.adapters if call.allowed_models.allows(model.name, each)]
    return model


def _which(request: Any) -> tuple[str, int | None]:
    """The model's name, and its version if there is one. Raises InvalidRequest for what can be none."""
    if not request.name:
        raise InvalidRequest("name", "is required")
    is_optional = request.DESCRIPTOR.fields_by_name["version"].has_presence
    if is_optional and not request.HasField("version"):
        return request.name, None
    if not request.version:
        raise InvalidRequest("version", "must be at least 1, not 0" if is_optional else "is required")
    return request.name, request.version


def _share(request: Any) -> float | None:
    return request.share if request.HasField("share") else None
