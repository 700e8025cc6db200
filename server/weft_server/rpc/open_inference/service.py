"""What answers the six methods of the Open Inference Protocol."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Any

from weft_proto.inference import open_inference_pb2
from weft_server.calls.concurrent_calls import most_together
from weft_server.errors import RequestError
from weft_server.models.registry import not_ready
from weft_server.rpc.health import LIVE, READY
from weft_server.rpc.model_service import model_proto
from weft_server.rpc.open_inference.inference import infer
from weft_server.rpc.open_inference.refusals import FIELDS, INFER_FIELDS, renamed
from weft_server.rpc.open_inference.signatures import metadata_of, signature_of
from weft_server.rpc.open_inference.typed_requests import selector_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft_server.config import ServerConfig
    from weft_server.models.registry import ModelRegistry
    from weft_server.models.request_context import RequestContext
    from weft_server.rpc.health import Health


class OpenInferenceServicer:
    """GRPCInferenceService."""

    def __init__(self, models: ModelRegistry, config: ServerConfig, health: Health) -> None:
        self._models, self._config, self._health = models, config, health
        self._version = importlib.metadata.version("weft-serving")

    async def answer(self, method: str, call: RequestContext, request: Any) -> Any:
        """Answer a request to a method, by its name. Raises RequestError, about fields of that request."""
        answers: dict[str, Callable[[RequestContext, Any], Awaitable[Any]]] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._model_infer,
        }
        try:
            return await answers[method](call, request)
        except RequestError as error:
            raise renamed(error, INFER_FIELDS if method == "ModelInfer" else FIELDS) from None

    async def _server_live(self, _call: RequestContext, _request: Any) -> Any:
        return open_inference_pb2.ServerLiveResponse(live=self._health.serves(LIVE))

    async def _server_ready(self, _call: RequestContext, _request: Any) -> Any:
        return open_inference_pb2.ServerReadyResponse(ready=self._health.serves(READY))

    async def _server_metadata(self, _call: RequestContext, _request: Any) -> Any:
        return open_inference_pb2.ServerMetadataResponse(name="weft", version=self._version)

    async def _model_ready(self, call: RequestContext, request: open_inference_pb2.ModelReadyRequest) -> Any:
        entry = self._models.find(selector_of(request.name, request.version), call.allowed_models)
        return open_inference_pb2.ModelReadyResponse(ready=entry.answers)

    async def _model_metadata(self, call: RequestContext, request: open_inference_pb2.ModelMetadataRequest) -> Any:
        entry = self._models.find(selector_of(request.name, request.version), call.allowed_models)
        if not entry.answers:
            raise not_ready(entry)
        signature = signature_of(entry.name, entry.task)
        metadata = metadata_of(signature, await model_proto(entry, self._models, self._config))
        metadata.versions.extend(str(each.version) for each in self._models.versions(entry.name) if each.answers)
        return metadata

    async def _model_infer(self, call: RequestContext, request: open_inference_pb2.ModelInferRequest) -> Any:
        return await infer(self._models, call, request, most_together(self._config.max_queued_requests))
