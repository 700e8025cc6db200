"""Tensors on the wire: the elements of a request's inputs, and what answers become as outputs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from weft_proto.inference import open_inference_pb2
from weft_proto.v1 import classification_pb2
from weft_server.errors import InvalidRequest
from weft_server.requests.embed import MAX_INPUTS
from weft_server.rpc.open_inference.signatures import BYTES, FP32
from weft_server.rpc.responses import packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft_server.rpc.open_inference.signatures import OutputTensor

    Element = bytes | memoryview
    from collections.abc import Iterable, Iterator

    # By the output's name: bytes, a list of them, or float32 [width].
    Row = dict[str, Any]

_LENGTH = struct.Struct("<I")
_CONTENTS = {BYTES: "bytes_contents", FP32: "fp32_contents"}
_MAX_SHOWN = 16
_TOKEN_FIELDS = [field.name for field in classification_pb2.TokenLabel.DESCRIPTOR.fields]
_SPAN_FIELDS = [field.name for field in classification_pb2.Span.DESCRIPTOR.fields]


class Input(NamedTuple):
    """An input tensor: which of the inputs it is, and its elements."""

    number: int
    elements: Sequence[Element]

    def place(self, element: int) -> str:
        """Return how a refusal names an element, whichever way it came."""
        return f"inputs[{self.number}].contents[{element}]"


def inputs_of(request: open_inference_pb2.ModelInferRequest) -> dict[str, Input]:
    """Return the input tensors by name; all have as many elements.

    Raises InvalidRequest for what is no tensor of texts or files, and where shape and contents differ.
    """
    raw = request.raw_input_contents
    if not request.inputs:
        raise InvalidRequest("inputs", "must not be empty", "EMPTY_INPUT")
    if raw and len(raw) != len(request.inputs):
        why = f"must have the contents of {len(request.inputs)} inputs, not of {len(raw)}"
        raise InvalidRequest("raw_input_contents", why)
    found: dict[str, Input] = {}
    for index, tensor in enumerate(request.inputs):
        place = f"inputs[{index}]"
        count = _count(tensor, place)
        if tensor.name in found:
            raise InvalidRequest(f"{place}.name", f"is there already: {tensor.name[:_MAX_SHOWN]!r}")
        if any(count != len(other.elements) for other in found.values()):
            raise InvalidRequest(f"{place}.shape", "must have as many elements as inputs[0]")
        if raw and tensor.HasField("contents"):
            raise InvalidRequest(f"{place}.contents", "must not be there beside raw_input_contents")
        elements = _cut(raw[index], count, index) if raw else _listed(tensor.contents, count, place)
        found[tensor.name] = Input(index, elements)
    return found


def _count(tensor: Any, place: str) -> int:
    """Return how many elements a tensor says that it has."""
    if tensor.datatype != BYTES:
        raise InvalidRequest(f"{place}.datatype", f"must be {BYTES}, not {tensor.datatype[:_MAX_SHOWN]!r}")
    if tensor.parameters:
        raise InvalidRequest(f"{place}.parameters", "must be empty: no parameter of a tensor is known here")
    shape = list(tensor.shape)
    if len(shape) not in {1, 2} or shape[1:] not in ([], [1]):
        raise InvalidRequest(f"{place}.shape", f"must be [n] or [n, 1], not {shape[:_MAX_SHOWN]}")
    if not 1 <= shape[0] <= MAX_INPUTS:
        raise InvalidRequest(f"{place}.shape", f"must have 1..{MAX_INPUTS} elements, not {shape[0]}", "INPUT_TOO_LONG")
    return int(shape[0])


def _listed(contents: Any, count: int, place: str) -> Sequence[bytes]:
    others = [field.name for field, _ in contents.ListFields() if field.name != _CONTENTS[BYTES]]
    if others:
        raise InvalidRequest(f"{place}.contents.{others[0]}", f"must be empty: the datatype is {BYTES}")
    elements: Sequence[bytes] = contents.bytes_contents
    if len(elements) != count:
        why = f"must be {count}, as the shape says, not {len(elements)}"
        raise InvalidRequest(f"{place}.contents.{_CONTENTS[BYTES]}", why)
    return elements


def _cut(raw: bytes, count: int, index: int) -> list[memoryview]:
    """Return the elements of raw contents, in which the length of each stands before it. Nothing is copied."""
    whole, elements, at = memoryview(raw), [], 0
    for _ in range(count):
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(whole, at)[0] if begin <= len(whole) else len(whole) + 1
        elements.append(whole[begin:at])
    if at != len(whole):
        why = f"must be {count} elements, as the shape says, each behind its length: 4 bytes, little-endian"
        raise InvalidRequest(f"raw_input_contents[{index}]", why)
    return elements


def add_output(
    response: open_inference_pb2.ModelInferResponse, output: OutputTensor, rows: Sequence[Any], *, raw: bool
) -> None:
    """Add an output tensor, given the row of each input: bytes, a list of them, or float32 [width]."""
    shape = [len(rows), len(rows[0])] if output.width else [len(rows)]
    tensor = response.outputs.add(name=output.name, datatype=output.datatype, shape=shape)
    if output.datatype == FP32:
        values = np.concatenate(rows)
        if raw:
            response.raw_output_contents.append(values.astype("<f4").tobytes())
        else:
            number = open_inference_pb2.InferTensorContents.FP32_CONTENTS_FIELD_NUMBER
            tensor.contents.MergeFromString(packed(number, values))
        return
    elements = [element for row in rows for element in row] if output.width else rows
    if raw:
        response.raw_output_contents.append(b"".join(_LENGTH.pack(len(each)) + each for each in elements))
    else:
        tensor.contents.bytes_contents.extend(elements)


def rows_of(answer: Any) -> list[Row]:
    """Return the rows of an answer, one for each element that it is of."""
    return [*_ROWS[type(answer).__name__](answer)]


def _labels(answer: Any) -> Iterator[Row]:
    yield {
        "label": [each.label.encode() for each in answer.labels],
        "score": np.array([each.score for each in answer.labels], np.float32),
    }


def _tags(answer: Any) -> Iterator[Row]:
    yield {"tokens": _json(answer.tokens, _TOKEN_FIELDS), "spans": _json(answer.spans, _SPAN_FIELDS)}


def _json(messages: Iterable[Any], fields: list[str]) -> bytes:
    """An array of objects with the contract's names. A float has so many digits that it is read as the same one."""
    return msgspec.json.encode([{name: getattr(each, name) for name in fields} for each in messages])


def _vectors(answer: Any) -> Iterator[Row]:
    for each in answer.embeddings:
        yield {"embedding": np.array(each.values, np.float32)}


_ROWS = {"ClassifyResponse": _labels, "TagResponse": _tags, "EmbedResponse": _vectors}
