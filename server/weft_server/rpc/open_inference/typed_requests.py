"""The requests of weft.v1 that a ModelInfer becomes: each has what all elements share, and its own elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1 import common_pb2
from weft_proto.v1.methods import METHODS
from weft_server.admission.message_limits import MAX_TEXT_BYTES
from weft_server.errors import InvalidRequest
from weft_server.rpc.open_inference.signatures import IMAGE, TEXT_PAIR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weft_proto.inference import open_inference_pb2
    from weft_server.rpc.open_inference.signatures import Signature
    from weft_server.rpc.open_inference.tensors import Input

    # By the name of its tensor: a text, or the bytes of a file.
    Element = dict[str, str | bytes | memoryview]

_ADAPTER = "adapter"


def selector_of(name: str, version: str) -> common_pb2.ModelSelector:
    """Return the selector that a model's name means, with the number of a version or its label, or with neither."""
    if not name:
        raise InvalidRequest("model.name", "is required", "MODEL_REQUIRED")
    selector = common_pb2.ModelSelector(name=name)
    if version.isascii() and version.isdigit():
        try:
            selector.version = int(version)
        except ValueError:
            raise InvalidRequest("model.version", f"is no version: {version[:16]!r}") from None
    elif version:
        selector.version_label = version
    return selector


def shared_of(request: open_inference_pb2.ModelInferRequest, signature: Signature) -> Any:
    """Return a typed request of what all elements share. Raises InvalidRequest for a parameter that it has not."""
    shared: Any = METHODS[signature.method].request(request_id=request.id)
    known = (*signature.parameters, _ADAPTER)
    for name, parameter in request.parameters.items():
        place = f"parameters.{name[:64]}"
        if name not in known:
            raise InvalidRequest(place, f"is not known: this model has {', '.join(known)}")
        holder = shared.model if name == _ADAPTER else shared
        field = holder.DESCRIPTOR.fields_by_name[name]
        is_text = field.type == field.TYPE_STRING
        choice = parameter.WhichOneof("parameter_choice")
        if choice not in ({"string_param"} if is_text else {"int64_param", "uint64_param"}):
            raise InvalidRequest(place, f"must be {'a string' if is_text else 'an integer'}")
        try:
            setattr(holder, name, getattr(parameter, choice))
        except ValueError:
            raise InvalidRequest(place, "must be 0..4294967295") from None
    return shared


def elements_of(signature: Signature, inputs: Mapping[str, Input]) -> list[Element]:
    """Return what is asked of the model, one by one.

    Raises InvalidRequest for tensors that it does not take, and for texts that are none or are too long.
    """
    if inputs.keys() not in signature.ways:
        ways = ", or ".join(" and ".join(sorted(way)) for way in signature.ways)
        raise InvalidRequest("inputs", f"must be {ways}, not {', '.join(inputs)[:64]!r}", "WRONG_INPUT_KIND")
    texts = [each for name, tensor in inputs.items() if name != IMAGE for each in tensor.elements]
    if sum(map(len, texts)) > MAX_TEXT_BYTES:
        raise InvalidRequest("inputs", f"have texts of more than {MAX_TEXT_BYTES:,} bytes", "MESSAGE_TOO_LARGE")
    columns = {name: tensor.elements if name == IMAGE else [*_texts(name, tensor)] for name, tensor in inputs.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _texts(name: str, tensor: Input) -> Iterator[str]:
    for index, element in enumerate(tensor.elements):
        # A typed request without a second text is answered, too.
        if name == TEXT_PAIR and not element:
            raise InvalidRequest(tensor.place(index), "must not be empty", "EMPTY_INPUT")
        try:
            yield str(element, "utf-8")
        except UnicodeDecodeError:
            raise InvalidRequest(tensor.place(index), "must be UTF-8", "MALFORMED_REQUEST") from None


def parts_of(shared: Any, elements: Sequence[Element]) -> list[tuple[int, Sequence[Element]]]:
    """Return the elements of each typed request, with the index of the first. Embed takes all at once, others one."""
    if "inputs" in shared.DESCRIPTOR.fields_by_name:
        return [(0, elements)]
    return [(index, [element]) for index, element in enumerate(elements)]


def typed_request(shared: Any, part: Sequence[Element]) -> Any:
    """Return the typed request of some elements."""
    request = type(shared)()
    request.CopyFrom(shared)
    takes_several = "inputs" in shared.DESCRIPTOR.fields_by_name
    for element in part:
        message = request.inputs.add() if takes_several else request
        for name, value in element.items():
            if isinstance(value, str):
                setattr(message, name, value)
            else:
                message.image.data = bytes(value)
    return request
