"""Which graphs cost whoever opens them: ONNX Runtime computes what is constant in a graph before its first run.

Nothing bounds that, and nothing ends it. So such a graph is opened in a process of its own first:
runtime/graph_sandbox.py.
"""

import math

import onnx

# Operators that move a tensor, or change its type. A graph of rounded weights has some.
_MOVES = {"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
# How often each weight may be moved.
_MAX_MOVES = 4
# Inputs and outputs of all nodes, and weights. Opening a graph takes time that can grow with the square of them. With
# so many it took seconds; an exported layer has about a hundred.
MAX_PARTS = 16_384


def is_costly_to_open(model: onnx.ModelProto) -> bool:
    """Whether opening a graph may take much more than reading it."""
    look = _Look()
    look.at(model.graph, {})
    return look.computes or look.num_moved > _MAX_MOVES * look.num_given or look.num_parts > MAX_PARTS


class _Look:
    def __init__(self) -> None:
        self.num_parts = 0
        # Elements of weights, and of those that are moved.
        self.num_given = 0
        self.num_moved = 0
        # Whether something is computed that is no move.
        self.computes = False

    def at(self, graph: onnx.GraphProto, outer: dict[str, int]) -> None:
        """Look at a graph within others. `outer` has what is constant there, and how many elements that has."""
        known = dict(outer)
        self.computes |= bool(graph.sparse_initializer)
        self.num_parts += len(graph.initializer)
        for tensor in graph.initializer:
            self._give(known, tensor.name, math.prod(tensor.dims))
        for node in graph.node:
            self.num_parts += len(node.input) + len(node.output)
            if node.op_type == "Constant":
                self._give(known, node.output[0], _size_of(node))
                continue
            inner = [graph for each in node.attribute for graph in (each.g, *each.graphs) if graph.node]
            for part in inner:
                self.at(part, known)
            is_constant = all(name in known for name in node.input if name)
            if inner:
                # A choice that is none is replaced by what is chosen.
                self.computes |= node.op_type == "If" and is_constant
            elif is_constant and node.op_type in _MOVES and node.input:
                self.num_moved += known[node.input[0]]
                known[node.output[0]] = known[node.input[0]]
            elif is_constant:
                self.computes = True

    def _give(self, known: dict[str, int], name: str, size: int) -> None:
        known[name] = size
        self.num_given += size


def _size_of(constant: onnx.NodeProto) -> int:
    """How many elements a Constant has. One that is written sparsely becomes whole, of any size."""
    (value,) = constant.attribute
    if value.HasField("sparse_tensor"):
        return 1 << 62
    return math.prod(value.t.dims) if value.HasField("t") else max(1, len(value.ints), len(value.floats))
