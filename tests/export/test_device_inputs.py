"""What a device is told in each run is read there: else it is copied once, when memory is bound, and never again."""

import math

import onnx
import pytest

# Which inputs of an operator CUDA's kernels take from the host, of those that our graphs have.
FROM_HOST = {
    "ConstantOfShape": {0},
    "Expand": {1},
    "GroupQueryAttention": {6},
    "Pad": {1, 2},
    "PagedAttention": {16},
    "Range": {0, 1, 2},
    "ReduceMax": {1},
    "ReduceMean": {1},
    "ReduceSum": {1},
    "Reshape": {1},
    "Slice": {1, 2, 3, 4},
    "Split": {1},
    "Squeeze": {1},
    "Tile": {1},
    "TopK": {1},
    "Unsqueeze": {1},
}
SMALL = 100
NAMES = ["tiny-generate", "tiny-gpt", "tiny-translate", "tiny-caption", "tiny-t5", "tiny-rnn-vanilla"]


def on_host(graph):
    """The nodes that ONNX Runtime moves from a device to the host, and the values that lie there.

    Its rule (GetCpuPreferredNodes in fallback_cpu_capability.cc, read in 2026): who reads a value of the host stays
    there, unless its kernel wants that input from the host anyway, or another input is neither of the host nor small
    nor an input of the graph. Of half precision none stays, which only makes fewer.
    """
    given = {port.name for port in graph.input}
    small = {tensor.name for tensor in graph.initializer if math.prod(tensor.dims) <= SMALL}
    nodes, values = [], set()
    for node in graph.node:
        inputs = {index: name for index, name in enumerate(node.input) if name}
        wanted = FROM_HOST.get(node.op_type, set())
        reads = any(name in values for name in inputs.values())
        stays = all(name in small | given or (name in values and index not in wanted) for index, name in inputs.items())
        if node.op_type in ("Shape", "Size") or (reads and stays):
            nodes.append(node)
            values |= set(node.output)
    return nodes, values


@pytest.mark.parametrize("name", NAMES)
def test_no_input_is_read_on_the_host(name, tiny_repository):
    """Nothing but shapes is computed on the host, and none of it is copied to the device in each run."""
    graph = onnx.load(tiny_repository / name / "1" / "decoder.onnx", load_external_data=False).graph
    nodes, values = on_host(graph)

    read = {name for node in nodes if node.op_type not in ("Shape", "Size") for name in node.input}
    assert read.isdisjoint(port.name for port in graph.input)
    others = [node for node in graph.node if node not in nodes]
    copied = [
        (node.op_type, value)
        for node in others
        for index, value in enumerate(node.input)
        if value in values and index not in FROM_HOST.get(node.op_type, set())
    ]
    assert [] == copied


def test_the_rule_finds_what_would_be_frozen():
    """A sum of a shape and an input is made on the host, and so is what follows it."""
    make = onnx.helper.make_node
    nodes = [
        make("Shape", ["ids"], ["shape"]),
        make("Add", ["past", "shape"], ["last"]),
        make("Neg", ["last"], ["out"]),
        make("Neg", ["past"], ["elsewhere"]),
        make("Reshape", ["elsewhere", "shape"], ["there"]),
    ]
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["n"]) for name in ("ids", "past", "out")]
    found, values = on_host(onnx.helper.make_graph(nodes, "sums", ports[:2], ports[2:]))

    assert ["Shape", "Add", "Neg"] == [node.op_type for node in found]
    assert {"shape", "last", "out"} == values
