"""The services as gRPC takes them: what answers each method of the contracts' tables, and its messages."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from weft_proto.inference import methods as open_inference
from weft_proto.v1.methods import METHODS, streaming
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.rpc.classification_service import answer_classify, answer_tag
from weft_server.rpc.embedding_service import answer_embed
from weft_server.rpc.extract import answer_extract
from weft_server.rpc.fill_mask import answer_fill_mask
from weft_server.rpc.model_service import ModelAdminServicer, ModelServicer
from weft_server.rpc.open_inference.service import OpenInferenceServicer
from weft_server.rpc.score_service import answer_score
from weft_server.rpc.text_services import (
    AnswerServicer,
    CaptionServicer,
    GenerationServicer,
    TranscriptionServicer,
    TranslationServicer,
)
from weft_server.rpc.tokenization_service import answer_detokenize, answer_tokenize

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from weft_proto.v1.methods import Method
    from weft_server.config import ServerConfig
    from weft_server.lifecycle.lifecycle import Lifecycle
    from weft_server.models.registry import ModelRegistry
    from weft_server.rpc.health import Health

    # Takes a request and gRPC's context.
    Behaviour = Callable[[Any, Any], Any]

# What answers a request that is asked of one of the models.
_ANSWERS: dict[str, Callable[[ModelRegistry, RequestContext, Any], Awaitable[Any]]] = {
    "Classify": answer_classify,
    "Tag": answer_tag,
    "Extract": answer_extract,
    "FillMask": answer_fill_mask,
    "Embed": answer_embed,
    "Score": answer_score,
    "Tokenize": answer_tokenize,
    "Detokenize": answer_detokenize,
}
# The same where text is produced, with the streaming method of each.
_TEXT_SERVICERS = {
    "Translate": TranslationServicer,
    "Caption": CaptionServicer,
    "Answer": AnswerServicer,
    "Transcribe": TranscriptionServicer,
    "Generate": GenerationServicer,
}


def behaviours(models: ModelRegistry, config: ServerConfig, lifecycle: Lifecycle | None = None) -> dict[str, Behaviour]:
    """Return what answers each method, by its name; those that change models only with a lifecycle."""
    catalogue = ModelServicer(models, config)
    answers: dict[str, Callable[[RequestContext, Any], Awaitable[Any]]] = {
        **{name: partial(answer, models) for name, answer in _ANSWERS.items()},
        "ListModels": catalogue.list_models,
        "GetModel": catalogue.get_model,
    }
    if lifecycle:
        admin = ModelAdminServicer(lifecycle, models, config)
        answers["LoadModel"] = admin.load_model
        answers["UnloadModel"] = admin.unload_model
        answers["SwapModel"] = admin.swap_model
        answers["SetLabel"] = admin.set_label
    found: dict[str, Behaviour] = {name: partial(_answer, answer) for name, answer in answers.items()}
    for name, kind in _TEXT_SERVICERS.items():
        servicer = kind(models, METHODS[name], streaming(name))
        found[name], found[streaming(name).name] = servicer.answer, servicer.stream
    return found


async def _answer(answer: Callable[[RequestContext, Any], Awaitable[Any]], request: Any, _context: Any) -> Any:
    call = REQUEST_CONTEXT.get()
    call.name(getattr(request, "request_id", ""))
    return await answer(call, request)


def open_inference_behaviours(models: ModelRegistry, config: ServerConfig, health: Health) -> dict[str, Behaviour]:
    """Return what answers each method of the Open Inference Protocol, by its name."""
    servicer = OpenInferenceServicer(models, config, health)
    return {name: partial(_answer, partial(servicer.answer, name)) for name in open_inference.METHODS}


def add_services(
    server: grpc.aio.Server,
    services: Iterable[str],
    answered_by: Mapping[str, Behaviour],
    methods: Mapping[str, Method] = METHODS,
) -> None:
    """Answer the methods of some services. `methods` has them by name."""
    for service in services:
        handlers = {
            name: _handler(method, answered_by[name]) for name, method in methods.items() if method.service == service
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))


def _handler(method: Method, behaviour: Behaviour) -> Any:
    make = grpc.unary_stream_rpc_method_handler if method.streams else grpc.unary_unary_rpc_method_handler
    return make(behaviour, method.request.FromString, method.response.SerializeToString)
