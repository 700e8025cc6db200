"""What models of each task take and give as tensors, and the method of weft.v1 that is asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft_proto.inference import open_inference_pb2
from weft_proto.tasks import TASKS
from weft_proto.v1 import common_pb2
from weft_proto.v1.methods import METHODS
from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_proto.v1 import model_pb2

BYTES, FP32 = "BYTES", "FP32"
# A dimension that a request decides.
_ANY = -1
TEXT, TEXT_PAIR, IMAGE = "text", "text_pair", "image"


class OutputTensor(NamedTuple):
    """An output tensor, [n] or [n, width]. `width` 0: it has one element for each of the inputs."""

    name: str
    datatype: str
    width: int = 0


class Signature(NamedTuple):
    """What the models of a task take and give.

    Attributes:
        method: of weft.v1, by its name.
        ways: the input tensors that a request may bring: those of one way, all of them.
        parameters: fields of the typed request that a request's parameters may set.
        outputs: the output tensors.
    """

    method: str
    ways: tuple[frozenset[str], ...]
    parameters: tuple[str, ...]
    outputs: tuple[OutputTensor, ...]


_TEXT, _PAIR, _IMAGE = frozenset({TEXT}), frozenset({TEXT, TEXT_PAIR}), frozenset({IMAGE})
_LABELS = (OutputTensor("label", BYTES, _ANY), OutputTensor("score", FP32, _ANY))
# Texts have different numbers of tokens and spans, so those of one text are one element: a JSON array.
_TAGS = (OutputTensor("tokens", BYTES), OutputTensor("spans", BYTES))
_VECTORS = (OutputTensor("embedding", FP32, _ANY),)
SIGNATURES = {
    common_pb2.TASK_CLASSIFY_TEXT: Signature("Classify", (_TEXT, _PAIR), ("top_k", "prompt_name"), _LABELS),
    common_pb2.TASK_CLASSIFY_IMAGE: Signature("Classify", (_IMAGE,), ("top_k",), _LABELS),
    common_pb2.TASK_TAG: Signature("Tag", (_TEXT,), (), _TAGS),
    common_pb2.TASK_EMBED_TEXT: Signature("Embed", (_TEXT,), ("dimensions", "prompt_name"), _VECTORS),
    common_pb2.TASK_EMBED_IMAGE: Signature("Embed", (_IMAGE,), ("dimensions",), _VECTORS),
    common_pb2.TASK_MATCH: Signature("Embed", (_TEXT, _IMAGE), ("dimensions",), _VECTORS),
}


def signature_of(name: str, task: common_pb2.Task.ValueType) -> Signature:
    """Return the signature of a model. Raises InvalidRequest for a task that is not asked by tensors."""
    if task in SIGNATURES:
        return SIGNATURES[task]
    method = next(method for method in METHODS.values() if task in method.tasks)
    why = f"{name!r} is for {TASKS[task].name}, which ModelInfer does not ask: call {method.path[1:]}"
    raise InvalidRequest("model.name", why, "WRONG_INPUT_KIND")


def metadata_of(signature: Signature, card: model_pb2.Model) -> open_inference_pb2.ModelMetadataResponse:
    """Return what a model takes and gives, all but its versions."""
    metadata = open_inference_pb2.ModelMetadataResponse(name=card.name, platform="onnx_onnxv1")
    for name in _inputs(signature, card):
        metadata.inputs.add(name=name, datatype=BYTES, shape=[_ANY])
    for output in signature.outputs:
        width = card.dimensions if output.name == "embedding" else output.width
        metadata.outputs.add(name=output.name, datatype=output.datatype, shape=[_ANY, width] if width else [_ANY])
    return metadata


def _inputs(signature: Signature, card: model_pb2.Model) -> Iterator[str]:
    for name in (TEXT, TEXT_PAIR, IMAGE):
        if any(name in way for way in signature.ways) and (name != TEXT_PAIR or card.takes_pairs):
            yield name
