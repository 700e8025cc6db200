"""One ModelInfer: a model is taken, asked for each element, and what it says is put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from weft_proto.inference.open_inference_pb2 import ModelInferRequest, ModelInferResponse
from weft_proto.token_vectors import vector_kinds
from weft_proto.v1 import common_pb2
from weft_server.calls.concurrent_calls import asked_together
from weft_server.errors import InvalidRequest, RequestError
from weft_server.rpc.classification_service import answer_classify, answer_tag, choice_of
from weft_server.rpc.embedding_service import answer_embed
from weft_server.rpc.open_inference.refusals import placed
from weft_server.rpc.open_inference.signatures import signature_of
from weft_server.rpc.open_inference.tensors import add_output, inputs_of, rows_of
from weft_server.rpc.open_inference.typed_requests import elements_of, parts_of, selector_of, shared_of, typed_request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft_server.models.model import Model
    from weft_server.models.registry import ModelRegistry
    from weft_server.models.request_context import RequestContext
    from weft_server.rpc.open_inference.signatures import OutputTensor, Signature
    from weft_server.rpc.open_inference.tensors import Input, Row
    from weft_server.rpc.open_inference.typed_requests import Element

T = TypeVar("T")

_ANSWERS: dict[str, Any] = {"Classify": answer_classify, "Tag": answer_tag, "Embed": answer_embed}
# Labels of the answers to all elements together. Each becomes an object of its own.
MAX_LABELS = 65_536
# A larger answer is read, and made of tensors, in a worker thread: the event loop would stand still for milliseconds.
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


async def infer(
    models: ModelRegistry, call: RequestContext, request: ModelInferRequest, most_together: int
) -> ModelInferResponse:
    """Return the tensors of what one version of a model says of each element, some of which are asked at a time.

    Raises RequestError: with the first element that is refused, all are.
    """
    call.name(request.id)
    inputs = inputs_of(request)
    model = await models.take_named(
        call,
        selector_of(request.model_name, request.model_version),
        lambda entry: signature_of(entry.name, entry.task),
    )
    signature = signature_of(model.name, model.manifest.task)
    if (
        model.manifest.HasField("embedding")
        and vector_kinds(model.manifest.embedding)[0] != common_pb2.VECTOR_KIND_WHOLE
    ):
        why = f"{model.name!r} makes vectors of tokens, whose number differs: call weft.v1.EmbeddingService/Embed"
        raise InvalidRequest("model.name", why, "WRONG_INPUT_KIND")
    outputs = _wanted(request, signature)
    elements = elements_of(signature, inputs)
    shared = shared_of(request, signature)
    if signature.method == "Classify":
        _bound_labels(shared, model, len(elements))
    # Once for all elements: those who wait for one to be loaded have few places.
    await call.adapt(shared.model.adapter)
    asking = _Asking(call, model, signature, inputs, shared)
    answers = await asked_together(asking.rows, parts_of(shared, elements), most_together)
    rows = [row for _, each in answers for row in each]
    response = ModelInferResponse(model_name=model.name, model_version=str(model.version), id=request.id)

    def fill() -> None:
        for output in outputs:
            add_output(response, output, [row[output.name] for row in rows], raw=bool(request.raw_input_contents))

    await _worked(model, call, sum(num_bytes for num_bytes, _ in answers), fill)
    return response


async def _worked(model: Model, call: RequestContext, num_bytes: int, job: Callable[[], T]) -> T:
    """Return what a job gives that reads so many bytes of answers."""
    if num_bytes > _SMALL_BYTES:
        return await model.work(lambda _: job(), call.deadline)
    return job()


@dataclass(frozen=True, slots=True)
class _Asking:
    """Asks the model of one ModelInfer."""

    call: RequestContext
    model: Model
    signature: Signature
    inputs: dict[str, Input]
    shared: Any

    async def rows(self, asked: tuple[int, Sequence[Element]]) -> tuple[int, list[Row]]:
        """Return how many bytes the model says to one typed request, and their rows.

        Raises RequestError, about fields of tensors.
        """
        first, part = asked
        call = self.call.another(self.signature.method)
        answer_to = _ANSWERS[self.signature.method]
        try:
            answer = await answer_to(HeldModel(self.model), call, typed_request(self.shared, part))
            num_bytes = answer.ByteSize()
            found = await _worked(self.model, call, num_bytes, lambda: rows_of(answer))
        except RequestError as error:
            raise placed(error, self.inputs, first) from None
        finally:
            call.let_go()
        return num_bytes, found


def _wanted(request: ModelInferRequest, signature: Signature) -> Sequence[OutputTensor]:
    """Return the outputs that a request wants. Raises InvalidRequest for unknown ones, and for one twice."""
    known = {output.name: output for output in signature.outputs}
    wants: list[OutputTensor] = []
    for index, wanted in enumerate(request.outputs):
        if wanted.name not in known:
            why = f"must be one of {', '.join(known)}, not {wanted.name[:64]!r}"
            raise InvalidRequest(f"outputs[{index}].name", why)
        if wanted.parameters:
            why = "must be empty: no parameter of a tensor is known here"
            raise InvalidRequest(f"outputs[{index}].parameters", why)
        if known[wanted.name] in wants:
            raise InvalidRequest(f"outputs[{index}].name", f"is there already: {wanted.name!r}")
        wants.append(known[wanted.name])
    return wants or signature.outputs


def _bound_labels(shared: Any, model: Model, count: int) -> None:
    """See that each answer of Classify has as many labels, and all together not too many.

    By its default a classifier of several labels would leave out those that are not probable.
    """
    if model.manifest.scoring == common_pb2.LABEL_SCORING_SIGMOID:
        shared.threshold = 0.0
    top_k = choice_of(shared, model.manifest.labels, model.manifest.scoring).top_k
    if count * top_k > MAX_LABELS:
        why = f"must be at most {MAX_LABELS // count} for {count} inputs: an answer has up to {MAX_LABELS:,} labels"
        raise InvalidRequest("parameters.top_k", why, "MESSAGE_TOO_LARGE")
