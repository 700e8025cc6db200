"""The graph that scores a given answer, made of the files of the graphs that decode. Nothing is traced for it.

Tracing is most of what an export takes. A decoder's graph does all that is needed already: it reads several positions
of a row, and then the logits of one. So it is taken apart between the two:

1. What comes before reads whole answers, from empty caches, behind the encoder.
2. What comes after is the body of a Scan. Each turn of it takes some positions of all rows, and leaves of their logits
   what was asked for. So logits of a whole answer are never there at once.

A decoder that reads one token at a time, as recurrent ones do, is the body of a Scan over the tokens, all of it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from weft_export.graphs.deferred import undeferred
from weft_proto.bundle_rules import MAX_TOP_TOKENS, SCORE_PORTS, SCORED_PORTS
from weft_proto.v1 import bundle_pb2

INT32, INT64, FLOAT = onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
# What stands before the names of an encoder's values, and of those in the body of a Scan.
_ENCODER, _EACH = "encoder.", "each."
_FED = "target_ids"
# What the names of inputs begin with that bring adapters.
_ADAPTER = "adapter"
# Inputs of com.microsoft::GroupQueryAttention by their places.
_KEY, _PAST_KEY, _PAST_VALUE, _BIAS, _KEY_SCALE, _VALUE_SCALE = 1, 3, 4, 10, 12, 13


def score_graph(
    encoder: Path | None, decoder: Path, states: Sequence[bundle_pb2.StateTensor], inner: tuple[str, str]
) -> onnx.ModelProto:
    """Return the graph of GRAPH_ROLE_SCORE for graphs in files, with whose weights beside it it runs.

    inner are the names of what last_position took and gave in the decoder, which one has not that reads single tokens.
    """
    model = onnx.load(decoder, load_external_data=False)
    read = onnx.load(encoder, load_external_data=False) if encoder is not None else None
    making = _Making(model, read, states)
    if making.steps:
        making.step_by_step()
    else:
        making.at_once(*inner)
    return making.made()


class _Making:
    """The nodes and weights of the graph so far."""

    def __init__(
        self, decoder: onnx.ModelProto, encoder: onnx.ModelProto | None, states: Sequence[bundle_pb2.StateTensor]
    ) -> None:
        self.model, self.states = decoder, states
        self.decoder, self.logits = undeferred(decoder.graph)
        self.weights = {tensor.name: tensor for tensor in decoder.graph.initializer}
        self.nodes: list[onnx.NodeProto] = []
        # Of each domain the newer: an encoder may have an operator that its decoder's opset has not.
        read = [*decoder.opset_import, *(encoder.opset_import if encoder is not None else ())]
        self.opsets = {opset.domain: opset for opset in sorted(read, key=lambda opset: opset.version)}
        vocab = next(port for port in decoder.graph.output if port.name == "logits").type.tensor_type.shape.dim[1]
        self.num_top = min(MAX_TOP_TOKENS, vocab.dim_value)
        self.fed = "input_ids"
        ids = next(port for port in decoder.graph.input if port.name == self.fed)
        # One that reads several tokens of a row has a name for how many.
        self.steps = ids.type.tensor_type.shape.dim[1].dim_value == 1
        self.inputs = [helper.make_tensor_value_info(ids.name, INT64, ["batch", "seq"])]
        self.memory_lengths = "memory_lengths"
        self.samples = False
        if encoder is not None:
            self.fed = _FED
            self._read(encoder.graph)
        # What brings adapters is brought to both graphs at once.
        self.adapters = {port.name: port.name for port in decoder.graph.input if port.name.startswith(_ADAPTER)}
        there = {port.name for port in self.inputs}
        self.inputs += [port for port in decoder.graph.input if port.name in self.adapters.keys() - there]

    def made(self) -> onnx.ModelProto:
        """Return the model, with the weights that its nodes read."""
        for node in self.nodes:
            for attribute in node.attribute:
                self._bring_columns(attribute.g)
        used = {name for node in self.nodes for name in _read_by(node)}
        graph = helper.make_graph(
            self.nodes,
            "score",
            [*self.inputs, *(helper.make_tensor_value_info(name, INT64, ["runs", "size"]) for name in SCORED_PORTS)],
            _answers(["runs", "size"], SCORE_PORTS, self.num_top),
            [tensor for name, tensor in self.weights.items() if name in used],
        )
        return helper.make_model(
            graph, ir_version=self.model.ir_version, opset_imports=list(self.opsets.values()), functions=[]
        )

    def _bring_columns(self, body: onnx.GraphProto) -> None:
        """Put the columns of a body's integer products into it, or the table that they are turned from.

        Where signed 8 bits would overflow, ONNX Runtime makes columns unsigned. It does so in their own graph alone.
        """
        made = {output: node for node in body.node for output in node.output}
        for node in body.node:
            if node.op_type == "MatMulIntegerToFloat":
                reader, place = (made[node.input[1]], 0) if node.input[1] in made else (node, 1)
                columns = body.initializer.add()
                columns.CopyFrom(self.weights[reader.input[place]])
                columns.name = reader.input[place] = _EACH + columns.name

    def at_once(self, before: str, after: str) -> None:
        """Read whole answers, then score some positions in each turn."""
        self._lengths()
        told = {"past_lengths": "nothing", "lengths": self._whole(), "total_length": "total"}
        names = {"input_ids": self.fed, "memory_lengths": self.memory_lengths, **told, **self.adapters, **self._pasts()}
        for node in self._renamed(_part(self.decoder, [before]), "", names):
            self._attend(node) if node.op_type == "GroupQueryAttention" else self.nodes.append(node)
        self._add("Flatten", [before], "flat", axis=2)
        inside = _Body()
        inside.add("Gather", ["flat", _EACH + SCORED_PORTS[0]], _EACH + "hidden", axis=0)
        # A decoder's products take the number of rows from its inputs.
        inside.add("Unsqueeze", [_EACH + SCORED_PORTS[1], self._constant([1])], _EACH + "fed")
        sized = ("past_lengths", "lengths", "memory_lengths", *(state.past for state in self.states))
        names = dict.fromkeys(sized, _EACH + SCORED_PORTS[1])
        names |= {after: _EACH + "hidden", "input_ids": _EACH + "fed"}
        inside.nodes += self._renamed(_part(self.decoder, [self.logits], {after}), _EACH, names)
        self._tail(inside, _EACH + self.logits, _EACH + SCORED_PORTS[1])
        ports = [helper.make_tensor_value_info(_EACH + name, INT64, ["size"]) for name in SCORED_PORTS]
        outputs = _answers(["size"], [_EACH + name for name in SCORE_PORTS], self.num_top)
        body = helper.make_graph(inside.nodes, "each", ports, outputs)
        self.nodes.append(
            helper.make_node("Scan", SCORED_PORTS, SCORE_PORTS, body=body, num_scan_inputs=len(SCORED_PORTS))
        )

    def step_by_step(self) -> None:
        """Score what follows each token, then pick the positions that were asked for."""
        self._lengths()
        carried = [state for state in self.states if state.kind == bundle_pb2.STATE_KIND_RECURRENT]
        names = self._pasts() | {"input_ids": _EACH + "fed", "memory_lengths": self.memory_lengths}
        firsts = [names[state.past] for state in carried]
        names |= {state.past: _EACH + state.past for state in carried}
        inside = _Body()
        inside.add("Unsqueeze", [_EACH + "token", self._constant([1])], _EACH + "fed")
        presents = [state.present for state in carried]
        inside.nodes += self._renamed(_part(self.decoder, [self.logits, *presents]), _EACH, names)
        self._tail(inside, _EACH + self.logits, _EACH + "next")
        ports = [
            *(_state_port(_EACH + state.past, state) for state in carried),
            *(helper.make_tensor_value_info(_EACH + name, INT64, ["batch"]) for name in ("token", "next")),
        ]
        outputs = [_state_port(_EACH + state.present, state) for state in carried]
        outputs += _answers(["batch"], [_EACH + name for name in SCORE_PORTS], self.num_top)
        body = helper.make_graph(inside.nodes, "each", ports, outputs)
        steps = [f"steps.{name}" for name in SCORE_PORTS]
        scan = helper.make_node(
            "Scan",
            [*firsts, self.fed, self._next_ids()],
            [*(f"last.{name}" for name in presents), *steps],
            body=body,
            num_scan_inputs=2,
            scan_input_axes=[1, 1],
            scan_output_axes=[1, 1, 1],
        )
        self.nodes.append(scan)
        self._add("Reshape", [steps[0], self._constant([-1])], "flat.0")
        for index, name in enumerate(SCORE_PORTS):
            if index:
                self._add("Flatten", [steps[index]], f"flat.{index}", axis=2)
            self._add("Gather", [f"flat.{index}", SCORED_PORTS[0]], name, axis=0)

    def _read(self, graph: onnx.GraphProto) -> None:
        """Put the encoder before all else."""
        self.inputs = [*graph.input, helper.make_tensor_value_info(_FED, INT64, ["batch", "target"])]
        for tensor in graph.initializer:
            tensor.name = _ENCODER + tensor.name
            self.weights[tensor.name] = tensor
        own = {port.name: port.name for port in graph.input}
        self.nodes += self._renamed(list(graph.node), _ENCODER, own)
        self.memory_lengths = "lengths" if "lengths" in own else "memory_lengths"
        self.samples = "waveform" in own

    def _lengths(self) -> None:
        """Make what a run of a decoder is told besides, of answers that begin in empty caches."""
        self._add("Shape", [self.fed], "num_rows", start=0, end=1)
        self.nodes.append(_filled("num_rows", "nothing", 0))
        self._add("Shape", [self.fed], "width", start=1, end=2)
        self._add("Cast", ["width"], "total", to=INT32)
        memories = [state for state in self.states if state.kind == bundle_pb2.STATE_KIND_MEMORY]
        if memories and self.samples:  # each row has as many places as the others, by how many samples there are
            encoded = _ENCODER + memories[0].encoder_output
            self._add("Shape", [encoded], "num_places", start=2, end=3)
            self._add("Cast", ["num_places"], "places_of_each", to=INT32)
            self._add("Expand", ["places_of_each", "num_rows"], self.memory_lengths)
        elif memories and self.memory_lengths == "memory_lengths":  # of a picture, all places are real
            self.nodes.append(_filled("num_rows", self.memory_lengths, memories[0].shape[memories[0].length_axis]))

    def _whole(self) -> str:
        """Return lengths of rows that are all real: what is padding stands behind what is asked for."""
        self._add("Expand", ["total", "num_rows"], "whole")
        return "whole"

    def _pasts(self) -> dict[str, str]:
        """Say which value stands for each state before the first token."""
        names = {}
        for state in self.states:
            written = _ENCODER + state.encoder_output
            names[state.past] = written if state.encoder_output else self._empty(state)
            # A recurrent decoder wants all places of a memory. An operator that attends takes as many as there are.
            if state.kind == bundle_pb2.STATE_KIND_MEMORY and self.steps:
                names[state.past] = f"whole.{state.past}"
                self._fill_up(written, names[state.past], state)
        return names

    def _empty(self, state: bundle_pb2.StateTensor) -> str:
        """Return a cache of all rows that holds nothing, or a recurrent state of all rows before anything came."""
        shape = list(state.shape)
        if state.kind == bundle_pb2.STATE_KIND_KV_CACHE:
            shape[state.length_axis] = 0
        name = f"empty.{state.data_type}.{'.'.join(map(str, shape))}"
        if not any(name in node.output for node in self.nodes):
            kind = np.int8 if state.data_type == bundle_pb2.DATA_TYPE_INT8 else np.float32
            self._add("Concat", ["num_rows", self._constant(shape)], f"{name}.shape", axis=0)
            self._add("ConstantOfShape", [f"{name}.shape"], name, value=numpy_helper.from_array(np.zeros(1, kind)))
        return name

    def _fill_up(self, name: str, whole: str, state: bundle_pb2.StateTensor) -> None:
        """Pad a memory [batch, ...] to the length of its state."""
        axis = 1 + state.length_axis
        self._add("Shape", [name], f"{whole}.length", start=axis, end=axis + 1)
        missing = f"{whole}.missing"
        self._add("Sub", [self._constant([state.shape[state.length_axis]]), f"{whole}.length"], missing)
        none = self._constant([0] * (1 + len(state.shape)))
        before = self._constant([0] * axis)
        after = self._constant([0] * (len(state.shape) - axis))
        parts = [none, before, missing, after] if axis < len(state.shape) else [none, before, missing]
        self._add("Concat", parts, f"{whole}.pads", axis=0)
        self._add("Pad", [name, f"{whole}.pads"], whole)

    def _next_ids(self) -> str:
        """Lay the scored ids out as the tokens that they follow, [batch, target]; 0 where none is asked for."""
        self._add("Size", [self.fed], "size")
        self._add("Unsqueeze", ["size", self._constant([0])], "size.1")
        zero = numpy_helper.from_array(np.zeros(1, np.int64))
        self._add("ConstantOfShape", ["size.1"], "no_ids", value=zero)
        for name in SCORED_PORTS:
            self._add("Reshape", [name, self._constant([-1])], f"{name}.flat")
        self._add("ScatterElements", ["no_ids", *(f"{name}.flat" for name in SCORED_PORTS)], "next.flat", axis=0)
        self._add("Shape", [self.fed], "shape")
        self._add("Reshape", ["next.flat", "shape"], "next_ids")
        return "next_ids"

    def _attend(self, node: onnx.NodeProto) -> None:
        """Add an attention over a cache, which is empty, or over a memory."""
        if node.input[_KEY]:
            self._attend_memory(node)
            return
        if len(node.input) > _BIAS and node.input[_BIAS]:
            # It is as wide as the cache of a decoder.
            name = f"{node.input[_BIAS]}.cut"
            if not any(name in other.output for other in self.nodes):
                self._add("Slice", [node.input[_BIAS], self._constant([0]), "width", self._constant([3])], name)
            node.input[_BIAS] = name
        self.nodes.append(node)

    def _attend_memory(self, node: onnx.NodeProto) -> None:
        """Add an attention of all positions of all rows to their memories. The decoder's operator takes one of them."""
        given = list(node.input)
        memory = []
        for past, scale in ((_PAST_KEY, _KEY_SCALE), (_PAST_VALUE, _VALUE_SCALE)):
            name = given[past]
            if len(given) > scale:
                self._add("Cast", [name], f"{node.output[0]}.{past}", to=FLOAT)
                self._add("Mul", [f"{node.output[0]}.{past}", given[scale]], f"{node.output[0]}.{past}.wide")
                name = f"{node.output[0]}.{past}.wide"
            memory.append(name)
        kept = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        attributes = {name: kept[name] for name in ("num_heads", "scale") if name in kept}
        inputs = [given[0], *memory, "", self.memory_lengths]
        attention = helper.make_node(
            "MultiHeadAttention", inputs, [node.output[0]], node.name, domain="com.microsoft", **attributes
        )
        self.nodes.append(attention)

    def _tail(self, inside: "_Body", logits: str, ids: str) -> None:
        """Add what is left of logits [n, vocab]: the log-probabilities of ids [n], and the best ones."""
        log_probs, top_ids, top_log_probs = (_EACH + name for name in SCORE_PORTS)
        inside.add("LogSoftmax", [logits], _EACH + "all", axis=-1)
        inside.add("Unsqueeze", [ids, self._constant([1])], _EACH + "column")
        inside.add("GatherElements", [_EACH + "all", _EACH + "column"], _EACH + "chosen", axis=1)
        inside.add("Squeeze", [_EACH + "chosen", self._constant([1])], log_probs)
        most = self._constant([self.num_top])
        inside.nodes.append(helper.make_node("TopK", [logits, most], [_EACH + "best", top_ids], axis=-1))
        inside.add("GatherElements", [_EACH + "all", top_ids], top_log_probs, axis=1)

    def _renamed(self, nodes: Sequence[onnx.NodeProto], prefix: str, names: Mapping[str, str]) -> list[onnx.NodeProto]:
        """Return copies of nodes whose values have a prefix, but those that names says. Weights are told by theirs."""
        made = {name for node in nodes for name in node.output if name}

        def of(name: str) -> str:
            if name in names:
                return names[name]
            weight = prefix + name if prefix == _ENCODER else name
            assert name in made or weight in self.weights or not name, f"nothing makes {name}. This is a bug."
            return prefix + name if name in made else weight

        copies = []
        for node in nodes:
            copy = onnx.NodeProto.FromString(node.SerializeToString())
            copy.name = prefix + node.name
            copy.input[:] = [of(name) if name else "" for name in node.input]
            copy.output[:] = [prefix + name if name else "" for name in node.output]
            copies.append(copy)
        return copies

    def _add(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))

    def _constant(self, values: Sequence[int]) -> str:
        name = f"constant.{'.'.join(map(str, values))}"
        self.weights[name] = numpy_helper.from_array(np.array(values, np.int64), name)
        return name


class _Body:
    """Nodes of a Scan's body."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []

    def add(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        """Add a node of one output."""
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))


def _part(nodes: Sequence[onnx.NodeProto], wanted: Sequence[str], given: Collection[str] = ()) -> list[onnx.NodeProto]:
    """Return the nodes that make `wanted`, directly or through others, but for what is given."""
    missing = set(wanted)
    found = []
    for node in reversed(nodes):
        if missing.intersection(node.output):
            found.append(node)
            missing.update(name for name in node.input if name not in given)
    return found[::-1]


def _read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of what a node reads, in its subgraphs too."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _read_by(inner)


def _answers(sizes: Sequence[str], names: Sequence[str], num_top: int) -> list[onnx.ValueInfoProto]:
    """Describe what is left of each token, of which there are so many."""
    log_probs, top_ids, top_log_probs = names
    return [
        helper.make_tensor_value_info(log_probs, FLOAT, sizes),
        helper.make_tensor_value_info(top_ids, INT64, [*sizes, num_top]),
        helper.make_tensor_value_info(top_log_probs, FLOAT, [*sizes, num_top]),
    ]


def _state_port(name: str, state: bundle_pb2.StateTensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, ["batch", *state.shape])


def _filled(size: str, name: str, value: int) -> onnx.NodeProto:
    """Make an int32 tensor [size] of one value."""
    tensor = numpy_helper.from_array(np.array([value], np.int32))
    return helper.make_node("ConstantOfShape", [size], [name], value=tensor)
