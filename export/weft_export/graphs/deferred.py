"""What only some runs ask for, computed under a condition: `logsumexp`, and at int8 logits at their scale.

Greedy decoding without scores needs the best candidates and nothing else. The rest is a tenth of a step at int8, and a
fortieth at float32 (32 rows over 32,000 tokens).
"""

from collections.abc import Iterable, Sequence

import onnx
from onnx import helper

from weft_proto.bundle_rules import READS_ALL


def defer(graph: onnx.GraphProto, names: Sequence[str]) -> None:
    """Move what only the outputs `names` need into an If on a new input, in place. If it is 0, they are empty."""
    nodes = _ranking_unscaled(list(graph.node))
    kept = _needed(nodes, [output.name for output in graph.output if output.name not in names])
    late = [node for node in nodes if node.output[0] not in kept]
    made = {name for node in late for name in node.output}
    outputs = [output for output in graph.output if output.name in made]
    branch = helper.make_node(
        "If",
        [f"{READS_ALL}.bool"],
        [output.name for output in outputs],
        then_branch=_all(late, outputs, [info for info in graph.value_info if info.name in made]),
        else_branch=_nothing(outputs),
    )
    condition = helper.make_node("Cast", [READS_ALL], [f"{READS_ALL}.bool"], to=onnx.TensorProto.BOOL)
    rest = [node for node in nodes if node.output[0] in kept]
    infos = [info for info in graph.value_info if info.name not in made]
    del graph.value_info[:]
    graph.value_info.extend(infos)
    del graph.node[:]
    graph.node.extend([*rest, condition, branch])
    # After the lengths: the states' ports stay the last.
    position = [port.name for port in graph.input].index("total_length") + 1
    graph.input.insert(position, helper.make_tensor_value_info(READS_ALL, onnx.TensorProto.INT32, [1]))


def undeferred(graph: onnx.GraphProto) -> tuple[list[onnx.NodeProto], str]:
    """Return the nodes of a decoder's graph as if nothing had been deferred, and the name of its logits."""
    nodes: list[onnx.NodeProto] = []
    logits = "logits"
    for node in graph.node:
        if logits in node.output and node.op_type == "If":
            branch = next(each.g for each in node.attribute if each.name == "then_branch")
            logits = branch.output[list(node.output).index(logits)].name
            nodes += branch.node
        else:
            nodes.append(node)
    return nodes, logits


def _ranking_unscaled(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """At int8, look for the best logits before the product with each row's scale. Then only the best are multiplied.

    This gives the same ids because a scale is positive. It is 0 only for a row of zeros. There all logits are 0, so any
    of them are the best.
    """
    makers = {name: node for node in nodes for name in node.output}
    scaling = makers["logits"]
    maker = makers.get(scaling.input[0])
    if scaling.op_type != "Mul" or maker is None or maker.op_type != "MatMulIntegerToFloat":
        return nodes
    product, scale = scaling.input
    ranking = _needed([node for node in nodes if node is not scaling], ["topk_logits", "topk_ids"])
    out = []
    for node in nodes:
        if node.output[0] in ranking:
            node.input[:] = [product if name == "logits" else name for name in node.input]
        out.append(node)
        if "topk_logits" in node.output:
            node.output[:] = ["topk_logits.unscaled" if name == "topk_logits" else name for name in node.output]
            out.append(helper.make_node("Mul", ["topk_logits.unscaled", scale], ["topk_logits"]))
    return out


def _needed(nodes: Sequence[onnx.NodeProto], names: Iterable[str]) -> set[str]:
    """Return which nodes, by their first output, make `names`, directly or through others."""
    wanted = set(names)
    found = set()
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            found.add(node.output[0])
            wanted.update(node.input)
    return found


def _all(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[onnx.ValueInfoProto], infos: Sequence[onnx.ValueInfoProto]
) -> onnx.GraphProto:
    """Make the branch that computes the outputs, under names of its own."""
    names = {output.name: f"{output.name}.all" for output in outputs}
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    made = [onnx.ValueInfoProto.FromString(output.SerializeToString()) for output in outputs]
    for output in made:
        output.name = names[output.name]
    return helper.make_graph(nodes, "all", [], made, value_info=infos)


def _nothing(outputs: Sequence[onnx.ValueInfoProto]) -> onnx.GraphProto:
    """Make the branch that leaves the outputs empty."""
    nodes = []
    made = []
    for output in outputs:
        name = f"{output.name}.none"
        tensor_type = output.type.tensor_type
        shape = [axis.dim_value for axis in tensor_type.shape.dim]  # of a symbolic batch, 0
        value = helper.make_tensor(name, tensor_type.elem_type, shape, [])
        nodes.append(helper.make_node("Constant", [], [name], value=value))
        made.append(helper.make_tensor_value_info(name, tensor_type.elem_type, shape))
    return helper.make_graph(nodes, "none", [], made)
