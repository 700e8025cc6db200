"""What answers the six methods of the Open Inference Protocol."""

from __future__ import annotations

import importlib.metadata
from functools import partial
from typing import TYPE_CHECKING, Any

from weft_proto.inference import open_inference_pb2
from weft_proto.v1 import common_pb2
from weft_server.calls.batch import asked_together, most_together
from weft_server.errors import InvalidRequest, RequestError
from weft_server.models.registry import not_ready
from weft_server.rpc.classification_service import answer_classify, answer_tag, choice_of
from weft_server.rpc.embedding_service import answer_embed
from weft_server.rpc.health import LIVE, READY
from weft_server.rpc.model_service import model_proto
from weft_server.rpc.open_inference.refusals import FIELDS, INFER_FIELDS, place, rename
from weft_server.rpc.open_inference.rows import rows_of
from weft_server.rpc.open_inference.signatures import metadata_of, signature_of
from weft_server.rpc.open_inference.tensors import add_output, inputs_of
from weft_server.rpc.open_inference.typed_requests import (
    elements_of,
    selector_of,
    shared_of,
    typed_requests,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft_server.config import ServerConfig
    from weft_server.models.model import Model
    from weft_server.models.registry import ModelRegistry
    from weft_server.models.request_context import RequestContext
    from weft_server.rpc.health import Health
    from weft_server.rpc.open_inference.rows import Row
    from weft_server.rpc.open_inference.signatures import Output, Signature
    from weft_server.rpc.open_inference.tensors import Input

_ANSWERS: dict[str, Any] = {"Classify": answer_classify, "Tag": answer_tag, "Embed": answer_embed}
# Labels of the answers to all elements together. Each becomes an object of its own.
MAX_LABELS = 65_536
# A larger answer is read in a worker thread: the event loop would stand still for milliseconds.
_SMALL_BYTES = 64 * 1024


class HeldModel:
    """What an answer to one element finds in place of the registry: the model that the ModelInfer has taken."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def take(self, call: RequestContext, selector: common_pb2.ModelSelector, *_: object) -> Model:
        """Take the model for a call, as ModelRegistry.take does."""
        call.take(self._model)
        await call.adapt(selector.adapter)
        return self._model


class OpenInferenceServicer:
    """GRPCInferenceService."""

    def __init__(self, models: ModelRegistry, config: ServerConfig, health: Health) -> None:
        self._models, self._config, self._health = models, config, health
        self._version = importlib.metadata.version("weft-serving")

    async def answer(self, method: str, call: RequestContext, request: Any) -> Any:
        """Answer a request to a method, by its name. Raises RequestError, about fields of that request."""
        answers = {
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
            rename(error, INFER_FIELDS if method == "ModelInfer" else FIELDS)
            raise

    async def _server_live(self, _call: RequestContext, _request: Any) -> Any:
        return open_inference_pb2.ServerLiveResponse(live=self._health.serves(LIVE))

    async def _server_ready(self, _call: RequestContext, _request: Any) -> Any:
        return open_inference_pb2.ServerReadyResponse(ready=self._health.serves(READY))

    async def _server_metadata(self, _call: RequestContext, _request: Any) -> Any:
        return open_inference_pb2.ServerMetadataResponse(name="weft", version=self._version)

    async def _model_ready(self, _call: RequestContext, request: open_inference_pb2.ModelReadyRequest) -> Any:
        entry = self._models.find(selector_of(request.name, request.version))
        return open_inference_pb2.ModelReadyResponse(ready=entry.answers)

    async def _model_metadata(self, _call: RequestContext, request: open_inference_pb2.ModelMetadataRequest) -> Any:
        entry = self._models.find(selector_of(request.name, request.version))
        if not entry.answers:
            raise not_ready(entry)
        signature = signature_of(entry.name, entry.task)
        metadata = metadata_of(signature, await model_proto(entry, self._models, self._config))
        metadata.versions.extend(str(each.version) for each in self._models.versions(entry.name) if each.answers)
        return metadata

    async def _model_infer(self, call: RequestContext, request: open_inference_pb2.ModelInferRequest) -> Any:
        """Answer with the tensors of what one version of a model says of each element.

        Raises RequestError: with the first element that is refused, all are.
        """
        call.name(request.id)
        inputs = inputs_of(request)
        model = await self._models.take_named(
            call,
            selector_of(request.model_name, request.model_version),
            lambda entry: signature_of(entry.name, entry.task),
        )
        signature = signature_of(model.name, model.manifest.task)
        outputs = _wanted(request, signature)
        elements = elements_of(signature, inputs)
        shared = shared_of(request, signature)
        _bound_labels(shared, model, len(elements))
        answers = await asked_together(
            partial(self._rows, call, model, signature, inputs),
            typed_requests(shared, elements),
            most_together(self._config.max_queued_requests),
        )
        response = open_inference_pb2.ModelInferResponse(
            model_name=model.name, model_version=str(model.version), id=request.id
        )
        rows = [row for each in answers for row in each]
        for output in outputs:
            add_output(response, output, [row[output.name] for row in rows], raw=bool(request.raw_input_contents))
        return response

    async def _rows(
        self,
        outer: RequestContext,
        model: Model,
        signature: Signature,
        inputs: dict[str, Input],
        asked: tuple[int, Any],
    ) -> list[Row]:
        """Return the rows of what the model says to one typed request."""
        index, request = asked
        call = outer.another(signature.method)
        call.name(outer.request_id)
        try:
            answer = await _ANSWERS[signature.method](HeldModel(model), call, request)
            if answer.ByteSize() > _SMALL_BYTES:
                found: list[Row] = await model.work(lambda _: rows_of(answer), call.deadline)
            else:
                found = rows_of(answer)
        except RequestError as error:
            place(error, inputs, index)
            raise
        finally:
            call.let_go()
        return found


def _wanted(request: open_inference_pb2.ModelInferRequest, signature: Signature) -> Sequence[Output]:
    """Return the outputs that a request wants. Raises InvalidRequest for those that there are not."""
    known = {output.name: output for output in signature.outputs}
    for index, wanted in enumerate(request.outputs):
        if wanted.name not in known:
            why = f"must be one of {', '.join(known)}, not {wanted.name[:64]!r}"
            raise InvalidRequest(f"outputs[{index}].name", why)
        if wanted.parameters:
            why = "must be empty: no parameter of a tensor is known here"
            raise InvalidRequest(f"outputs[{index}].parameters", why)
    return [known[wanted.name] for wanted in request.outputs] or signature.outputs


def _bound_labels(shared: Any, model: Model, count: int) -> None:
    """See that each answer of Classify has as many labels, and all together not too many.

    By its default a classifier of several labels would leave out those that are not probable.
    """
    if not model.manifest.labels or "top_k" not in shared.DESCRIPTOR.fields_by_name:
        return
    if model.manifest.scoring == common_pb2.LABEL_SCORING_SIGMOID:
        shared.threshold = 0.0
    top_k = choice_of(shared, model.manifest.labels, model.manifest.scoring).top_k
    if count * top_k > MAX_LABELS:
        why = f"must be at most {MAX_LABELS // count} for {count} inputs: an answer has up to {MAX_LABELS:,} labels"
        raise InvalidRequest("parameters.top_k", why, "MESSAGE_TOO_LARGE")
