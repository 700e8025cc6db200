"""The service that changes which models there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1 import admin_pb2, admin_pb2_grpc
from weft_server.errors import InvalidRequest
from weft_server.models.request_context import REQUEST_CONTEXT
from weft_server.rpc.model_service import model_proto

if TYPE_CHECKING:
    from weft_server.config import ServerConfig
    from weft_server.lifecycle.lifecycle import Lifecycle
    from weft_server.models.registry import ModelRegistry


class ModelAdminServicer(admin_pb2_grpc.ModelAdminServiceServicer):
    """weft.v1.ModelAdminService."""

    def __init__(self, lifecycle: Lifecycle, models: ModelRegistry, config: ServerConfig) -> None:
        self._lifecycle, self._models, self._config = lifecycle, models, config

    async def LoadModel(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - the proto's name and signature
        """Answer when the model answers."""
        name, version = _which(request)
        entry = await self._lifecycle.load(name, version, request.version_label, _share(request))
        return admin_pb2.LoadModelResponse(model=await model_proto(entry, self._models, self._config))

    async def UnloadModel(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - same
        """Answer when the model's memory is free."""
        name, version = _which(request)
        assert version is not None
        await self._lifecycle.unload(name, version)
        return admin_pb2.UnloadModelResponse()

    async def SwapModel(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - same
        """Answer when only the one version is left."""
        name, version = _which(request)
        entry, unloaded = await self._lifecycle.swap(name, version)
        model = await model_proto(entry, self._models, self._config)
        return admin_pb2.SwapModelResponse(model=model, unloaded=unloaded)

    async def SetLabel(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - same
        """Answer when the label is set."""
        name, version = _which(request)
        await self._lifecycle.label(name, request.version_label, version, _share(request))
        return admin_pb2.SetLabelResponse()


def _which(request: Any) -> tuple[str, int | None]:
    """The model's name, and its version if there is one. Raises InvalidRequest for what can be none."""
    REQUEST_CONTEXT.get().name("")
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
