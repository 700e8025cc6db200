"""Decomposes a traced program's operators where they stand.

torch.onnx.export has a program traced a second time for that, which takes half of an export. Nearly all operators of
our graphs have a twin in ONNX. The few that have none are rewritten here. A program with others, or with a loop, is
traced again.
"""
# ruff: noqa: SLF001 - operators whose names begin so are public ones of PyTorch's

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest import mock

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

_ATEN = torch.ops.aten
_MADE_OF_OTHERS = torch._C.DispatchKey.CompositeImplicitAutograd
_Shape = list[int | Node]
_Table = dict[Any, Callable[..., Any]]
_Sizes = dict[str, Node]
"""What gives a size that is not certain, by the symbol of that size."""


@contextlib.contextmanager
def where_they_stand() -> Iterator[None]:
    """Have torch.onnx.export decompose programs so, as long as this lasts."""
    trace_again = ExportedProgram.run_decompositions

    def run(program: ExportedProgram, table: _Table) -> ExportedProgram:
        return trace_again(program, table) if _is_unknown(program, table) else _decomposed(program)

    with mock.patch.object(ExportedProgram, "run_decompositions", run):
        yield


def _is_unknown(program: ExportedProgram, table: _Table) -> bool:
    """Return whether a program has an operator that is made of others, and that is neither rewritten here nor kept.

    Or a loop, whose operators stand in a graph of its own.
    """
    if len(list(program.graph_module.modules())) > 1:
        return True
    targets = {node.target for node in program.graph.nodes if isinstance(node.target, OpOverload)} - _KNOWN
    return any(each in table or each.has_kernel_for_dispatch_key(_MADE_OF_OTHERS) for each in targets)


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    sizes: _Sizes = {}
    for node in list(program.graph.nodes):
        if node.target is _ATEN.sym_size.int:
            sizes.setdefault(str(node.meta["val"]), node)
        elif rewrite := _REWRITES.get(node.target):
            same = rewrite(node, sizes)
            if same is not None:
                program.graph_signature.replace_all_uses(node.name, same.name)
                node.replace_all_uses_with(same)
                program.graph.erase_node(node)
    program.graph_module.recompile()
    return program


def _checked(node: Node, _: _Sizes) -> None:
    node.graph.erase_node(node)


def _source(node: Node) -> Node:
    return cast("Node", node.args[0])


def _detached(node: Node, _: _Sizes) -> Node:
    return _source(node)


def _cast(node: Node, _: _Sizes) -> Node | None:
    source, data_type = _source(node), node.args[1]
    if source.meta["val"].dtype == data_type:
        return source
    node.target, node.args, node.kwargs = _ATEN._to_copy.default, (source,), {"dtype": data_type}
    return None


def _and(node: Node, _: _Sizes) -> None:
    node.target = _ATEN.bitwise_and.Tensor


def _or(node: Node, _: _Sizes) -> None:
    node.target = _ATEN.bitwise_or.Tensor


def _flattened(node: Node, sizes: _Sizes) -> None:
    """Make a view of it. The size of the axes that become one is left to ONNX if it is not certain."""
    shape = node.meta["val"].shape
    start = cast("int", node.args[1] if len(node.args) > 1 else 0) % _source(node).meta["val"].dim()
    _view(node, _given(node, sizes, start, [shape[start] if isinstance(shape[start], int) else -1]))


def _unflattened(node: Node, sizes: _Sizes) -> None:
    _, axis, parts = node.args
    start = cast("int", axis) % _source(node).meta["val"].dim()
    _view(node, _given(node, sizes, start, cast("_Shape", parts)))


def _given(node: Node, sizes: _Sizes, start: int, middle: _Shape) -> _Shape:
    """Return a shape: `middle` for some axes of a node's source, from start on, and the source's sizes around it."""
    source = _source(node).meta["val"].shape
    num_behind = len(node.meta["val"].shape) - start - len(middle)
    before = [_size(node, axis, source[axis], sizes) for axis in range(start)]
    behind = [_size(node, axis, source[axis], sizes) for axis in range(len(source) - num_behind, len(source))]
    return [*before, *middle, *behind]


def _reshaped(node: Node, _: _Sizes) -> None:
    _view(node, cast("_Shape", node.args[1]))


def _view(node: Node, shape: _Shape) -> None:
    """Make a view of a node, of a copy of its source if torch would copy: ONNX's Reshape of a view knows sizes of 0."""
    source = _source(node)
    if not source.meta["val"].is_contiguous():
        with node.graph.inserting_before(node):
            copy = node.graph.call_function(_ATEN.clone.default, (source,), {"memory_format": torch.contiguous_format})
        copy.meta = node.meta | {"val": source.meta["val"]}
        source = copy
    node.target, node.args = _ATEN.view.default, (source, shape)


def _chunked(node: Node, _: _Sizes) -> None:
    source, num_parts = _source(node), cast("int", node.args[1])
    axis = cast("int", node.args[2] if len(node.args) > 2 else 0) % source.meta["val"].dim()
    node.target, node.args = _ATEN.split.Tensor, (source, -(-source.meta["val"].shape[axis] // num_parts), axis)


def _added(node: Node, _: _Sizes) -> None:
    source, axis, places, values = cast("tuple[Node, int, Node, Node]", node.args)
    if "alpha" in node.kwargs:
        with node.graph.inserting_before(node):
            times = node.graph.call_function(_ATEN.mul.Tensor, (values, node.kwargs["alpha"]))
        times.meta = node.meta | {"val": values.meta["val"]}
        values = times
    before = [None] * (axis % source.meta["val"].dim())
    node.target, node.args, node.kwargs = _ATEN.index_put.default, (source, [*before, places], values, True), {}


def _squared(node: Node, _: _Sizes) -> None:
    node.target, node.args = _ATEN.pow.Tensor_Scalar, (_source(node), 2)


def _size(node: Node, axis: int, size: int | torch.SymInt, sizes: _Sizes) -> int | Node:
    """Return the size of an axis of a node's source, or what gives it: in front of the node if nothing does yet."""
    if isinstance(size, int):
        return size
    if str(size) not in sizes:
        with node.graph.inserting_before(node):
            made = node.graph.call_function(_ATEN.sym_size.int, (node.args[0], axis))
        made.meta = node.meta | {"val": size}
        sizes[str(size)] = made
    return sizes[str(size)]


# A rewrite returns the value that stands for its node's, if there is one already.
_REWRITES: dict[Any, Callable[[Node, _Sizes], Node | None]] = {
    _ATEN._assert_scalar.default: _checked,
    _ATEN._assert_tensor_metadata.default: _checked,
    _ATEN.detach_.default: _detached,
    _ATEN.to.dtype: _cast,
    _ATEN.__and__.Tensor: _and,
    _ATEN.__or__.Tensor: _or,
    _ATEN.flatten.using_ints: _flattened,
    _ATEN.reshape.default: _reshaped,
    _ATEN.unflatten.int: _unflattened,
    _ATEN.chunk.default: _chunked,
    _ATEN.index_add.default: _added,
    _ATEN.square.default: _squared,
}
# What is made of others, and has a twin in ONNX nevertheless.
_KEPT = {
    _ATEN.conv1d.default,
    _ATEN.conv2d.default,
    _ATEN.dropout.default,
    _ATEN.einsum.default,
    _ATEN.expand_as.default,
    _ATEN.group_norm.default,
    _ATEN.layer_norm.default,
    _ATEN.linear.default,
    _ATEN.log_softmax.int,
    _ATEN.matmul.default,
    _ATEN.max_pool2d.default,
    _ATEN.pad.default,
    _ATEN.repeat_interleave.self_int,
    _ATEN.scaled_dot_product_attention.default,
    _ATEN.softmax.int,
    _ATEN.sym_size.int,
    _ATEN.where.Scalar,
    _ATEN.where.ScalarOther,
    _ATEN.where.ScalarSelf,
}
_KNOWN = _KEPT | _REWRITES.keys()
