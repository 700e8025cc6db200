"""Graphs that take adapters: which products of a model can have one, and the inputs that bring them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import onnx_ir
import torch
from torch import Tensor, nn

from weft_export.choices import PRODUCTS
from weft_export.errors import CheckpointError
from weft_export.families.causal import CausalLayer
from weft_export.graphs.graphs import Graph, Input
from weft_export.layers.adapted_linear import OPERATOR, AdaptedLinear, Adapters, adapting, noting_layers
from weft_export.layers.attention import SelfAttention
from weft_export.layers.cross_attention import CrossAttention
from weft_export.layers.decoder import DecoderLayer
from weft_export.layers.encoder import EncoderLayer
from weft_export.layers.feed_forward import FeedForward, GatedFeedForward
from weft_proto.bundle_rules import ADAPTER_PORTS, adapter_ports
from weft_proto.v1 import bundle_pb2

_LAYERS = (CausalLayer, EncoderLayer, DecoderLayer)
_SUBLAYERS = (SelfAttention, CrossAttention, FeedForward, GatedFeedForward)
# Queries, keys and values have an adapter each in most checkpoints. Ours have one product for all three.
_FUSED = 3
# Sizes to trace with.
_GROUPS, _MEMBERS, _ADAPTED = 3, 4, 5


def adapter_spec(model: nn.Module, rank: int, names: Sequence[str] = PRODUCTS) -> bundle_pb2.AdapterSpec:
    """Return which products of a model take an adapter of at most `rank`: those of its layers with one of `names`.

    Of a model that sees, what sees has none: what is kept of a picture is kept for all who show it.

    Raises:
        CheckpointError: there are none.
    """
    layers = []
    for path, product in _products(model):
        name = path.rpartition(".")[2]
        if name in names:
            outputs, inputs = product.weight.shape
            largest = min(inputs, outputs, rank * (_FUSED if name == "qkv" else 1))
            layers.append(bundle_pb2.AdaptedLayer(name=path, inputs=inputs, outputs=outputs, rank=largest))
    if not layers:
        raise CheckpointError(
            f"adapters are for the layers of Transformers; this model has no {' or '.join(names)} there"
        )
    return bundle_pb2.AdapterSpec(layers=layers)


def _products(model: nn.Module) -> list[tuple[str, nn.Linear]]:
    found = []
    kinds = (CausalLayer,) if getattr(model, "sees", False) else _LAYERS
    for path, layer in model.named_modules():
        if type(layer) not in kinds:
            continue
        for part, sublayer in layer.named_children():
            if type(sublayer) in _SUBLAYERS:
                children = sublayer.named_children()
                found += [(f"{path}.{part}.{name}", each) for name, each in children if isinstance(each, nn.Linear)]
    return found


def attach(model: nn.Module, spec: bundle_pb2.AdapterSpec) -> None:
    """Let products of a model take adapters, in place."""
    for layer in spec.layers:
        path, _, name = layer.name.rpartition(".")
        parent: Any = model.get_submodule(path)
        setattr(parent, name, AdaptedLinear(getattr(parent, name), layer.name))


class AdaptedView(nn.Module):
    """A graph's module, with inputs behind its own that bring adapters."""

    def __init__(self, view: nn.Module, layers: Sequence[str]) -> None:
        super().__init__()
        self.view, self.layers = view, tuple(layers)

    def forward(self, *inputs: Tensor) -> Any:
        """Return what the module returns of its own inputs.

        Behind them are members, rows and places, then A and B of each layer. See Adapters.
        """
        num_own = len(inputs) - len(ADAPTER_PORTS) - 2 * len(self.layers)
        own, (members, rows, places, *matrices) = inputs[:num_own], inputs[num_own:]
        pairs = dict(zip(self.layers, zip(matrices[::2], matrices[1::2], strict=True), strict=True))
        with adapting(Adapters(members, rows, places, pairs)):
            return self.view(*own)


def expand(model: onnx_ir.Model) -> None:
    """Put operators of ONNX in the place of those that stand for what adapters add, in place."""
    domain, _, kind = OPERATOR.partition("::")
    for node in [node for node in model.graph if (node.domain, node.op_type) == (domain, kind)]:
        nodes = _added(node)
        model.graph.insert_before(node, nodes)
        value = nodes[-1].outputs[0]
        value.shape, value.type = node.outputs[0].shape, node.outputs[0].type
        node.outputs[0].replace_all_uses_with(value)
        model.graph.remove(node, safe=True)


def _added(node: onnx_ir.Node) -> list[onnx_ir.Node]:
    """Return what computes out + A B of each row's own group. What several products share is shared later."""
    out, x, members, rows, places, a, b = node.inputs
    nodes: list[onnx_ir.Node] = []

    def add(kind: str, *inputs: Any, **attributes: Any) -> onnx_ir.Value:
        nodes.append(onnx_ir.node(kind, inputs, attributes))
        return nodes[-1].outputs[0]

    def constant(value: Sequence[int]) -> onnx_ir.Value:
        return add("Constant", value_ints=value)

    groups, places_each = add("Shape", members, start=0, end=1), add("Shape", members, start=1, end=2)
    seq = add("Shape", x, start=1, end=2)
    inputs, outputs = add("Shape", a, start=1, end=2), add("Shape", b, start=2, end=3)
    mine = add("Gather", x, add("Reshape", members, constant([-1])), axis=0)
    mine = add("Reshape", mine, add("Concat", groups, add("Mul", places_each, seq), inputs, axis=0))
    delta = add("MatMul", add("MatMul", mine, a), b)
    delta = add("Reshape", delta, add("Concat", add("Mul", groups, places_each), seq, outputs, axis=0))
    delta = add("Gather", delta, places, axis=0)
    add("ScatterND", out, add("Unsqueeze", rows, constant([1])), delta, reduction="add")
    return nodes


def adapted(graph: Graph, spec: bundle_pb2.AdapterSpec) -> Graph:
    """Return a graph with the inputs that bring adapters to those products that it computes. It may have none.

    One that is made of others gets theirs.
    """
    if graph.made_of:
        return graph
    with torch.no_grad(), noting_layers() as computed:
        graph.module(*(port.example for port in graph.inputs))
    layers = [layer for layer in spec.layers if layer.name in computed]
    if not layers:
        return graph
    ports = [
        Input(ADAPTER_PORTS[0], torch.zeros(_GROUPS, _MEMBERS, dtype=torch.int64), {0: "groups", 1: "members"}),
        *(Input(name, torch.zeros(_ADAPTED, dtype=torch.int64), {0: "adapted"}) for name in ADAPTER_PORTS[1:]),
    ]
    for layer in layers:
        shapes = (layer.inputs, layer.rank), (layer.rank, layer.outputs)
        for name, shape in zip(adapter_ports(layer.name), shapes, strict=True):
            ports.append(Input(name, torch.zeros(_GROUPS, *shape), {0: "groups"}))
    module = AdaptedView(graph.module, [layer.name for layer in layers])
    return replace(graph, module=module, inputs=(*graph.inputs, *ports))
