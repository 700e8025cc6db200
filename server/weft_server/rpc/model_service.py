"""The service that tells which models there are and what they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1 import model_pb2, model_pb2_grpc
from weft_server.loading.model_card import card_of
from weft_server.models.request_context import REQUEST_CONTEXT
from weft_server.models.version_labels import CANARY

if TYPE_CHECKING:
    from weft_server.config import ServerConfig
    from weft_server.models.registry import ModelRegistry, RegistryEntry


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """weft.v1.ModelService."""

    def __init__(self, models: ModelRegistry, config: ServerConfig) -> None:
        self._models, self._config = models, config

    async def ListModels(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - the proto's name and signature
        """Answer with every entry."""
        REQUEST_CONTEXT.get().name("")
        listed = [await model_proto(entry, self._models, self._config) for entry in tuple(self._models.entries)]
        return model_pb2.ListModelsResponse(models=listed)

    async def GetModel(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - the proto's name and signature
        """Answer with one entry."""
        REQUEST_CONTEXT.get().name("")
        entry = self._models.find(request.model)
        return model_pb2.GetModelResponse(model=await model_proto(entry, self._models, self._config))


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
