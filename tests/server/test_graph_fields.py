"""ONNX files of millions of fields are refused before one of them becomes an object."""

import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from bounded import Bounded
from drafts import refused, translate
from on_the_wire import sized, varint
from weft_server.bundle.graph_fields import MAX_GRAPH_FIELDS, verify_fields
from weft_server.errors import BundleError

# Numbers of fields: a model's graph, and of a graph its nodes and tensors.
GRAPH, NODE, TENSOR = 7, 1, 5
# Of a node its attribute, and of that its graph and tensor.
ATTRIBUTE, SUBGRAPH = 5, 6
INT64S, FLOATS = 7, 4
EMPTY = b"\x0a\0"


def inside(*numbers, body):
    """A message within fields of these numbers, outermost first."""
    for number in reversed(numbers):
        body = sized(number, body)
    return body


PLACES = {
    "nodes": ((GRAPH,), EMPTY),
    "tensors": ((GRAPH,), b"\x2a\0"),
    "names": ((GRAPH, NODE), EMPTY),
    "nodes of a subgraph": ((GRAPH, NODE, ATTRIBUTE, SUBGRAPH), EMPTY),
    "dimensions": ((GRAPH, TENSOR), b"\x08\1"),
    "packed integers": ((GRAPH, TENSOR, INT64S), b"\1"),
    "fields that nobody knows": ((GRAPH,), varint(99 << 3) + b"\1"),
    "numbers of four bytes": ((GRAPH,), varint(99 << 3 | 5) + bytes(4)),
    "numbers of eight bytes": ((GRAPH,), varint(99 << 3 | 1) + bytes(8)),
}


@pytest.mark.parametrize(("around", "field"), PLACES.values(), ids=PLACES)
def test_fields_are_counted_wherever_they_hide(around, field, monkeypatch):
    """One more than the bound is refused. That they are empty does not matter."""
    monkeypatch.setattr("weft_server.bundle.graph_fields.MAX_GRAPH_FIELDS", 1000)
    verify_fields(inside(*around, body=field * (1000 - len(around))), "x.onnx")
    with pytest.raises(BundleError, match=r"^x\.onnx has more than 1,000 fields$"):
        verify_fields(inside(*around, body=field * (1001 - len(around))), "x.onnx")


def test_what_stands_behind_the_bound_is_not_read(monkeypatch):
    """Whatever it is: so millions of fields take no longer than those that are counted."""
    monkeypatch.setattr("weft_server.bundle.graph_fields.MAX_GRAPH_FIELDS", 1000)
    for around in ((), (GRAPH,), (GRAPH, NODE)):
        with pytest.raises(BundleError):
            verify_fields(inside(*around, body=EMPTY * 1001 + b"\xff" * 99), "x.onnx")


def test_weights_in_the_file_are_not_counted():
    """Bytes, and numbers of four or eight bytes each, take no more memory than they have."""
    weights = [
        helper.make_tensor("raw", TensorProto.FLOAT, [3_000_000], bytes(12_000_000), raw=True),
        inside(GRAPH, TENSOR, FLOATS, body=bytes(4 * 3_000_000)),
    ]
    verify_fields(weights[1], "x.onnx")
    graph = helper.make_graph([], "g", [], [], [weights[0], numpy_helper.from_array(range_of(9), "small")])
    verify_fields(helper.make_model(graph).SerializeToString(), "x.onnx")


def range_of(count):
    """Numbers from 0, as an array."""
    return numpy_helper.to_array(helper.make_tensor("n", TensorProto.INT64, [count], range(count)))


@pytest.mark.parametrize(
    "data",
    [
        b"\x3a\x05abcd",
        b"\x3a",
        b"\xba",
        b"\x08" + b"\xff" * 10**6,
        b"\x3b\x3c",
        b"\x3e\0",
        b"\x3a\x02\x0d\0\0\0\0",
        b"\x3a\x01\x08\x01",
    ],
)
def test_what_is_no_message_is_refused(data):
    """Bytes that end too early, or go beyond the message around them, numbers without end, and groups."""
    with pytest.raises(DecodeError):
        verify_fields(data, "x.onnx")


def test_messages_are_not_nested_without_end():
    """As deep as protobuf reads them, and no deeper: then it would be Python that gives up."""
    deep = b""
    for number in (SUBGRAPH, ATTRIBUTE, NODE) * 400:
        deep = sized(number, deep)
    with pytest.raises(DecodeError):
        verify_fields(sized(GRAPH, deep), "x.onnx")


def refusal_of_millions(directory):
    """Why a bundle is refused whose graph has 33 million nodes."""
    draft = translate(directory)
    del draft.models["encoder.onnx"]
    draft.files["encoder.onnx"] = inside(GRAPH, body=EMPTY * ((32 << 20) - 8))
    return refused(draft.write())


def test_a_bundle_of_millions_of_nodes_takes_little_memory(tmp_path):
    """64 MiB of them would be 5 GB. The process that reads them has one."""
    with Bounded(__file__, "refusal_of_millions", megabytes=1024) as refusal:
        assert f"encoder.onnx has more than {MAX_GRAPH_FIELDS:,} fields" in refusal(tmp_path / "tiny" / "1")
