"""Graphs that keep every rule of a bundle and have no end: what a hostile bundle would hold."""

import hashlib
import shutil

import numpy as np
import onnx
from google.protobuf import json_format
from onnx import TensorProto, helper, numpy_helper

from weft_proto.v1 import bundle_pb2

# More than any machine counts to.
FOREVER = 1 << 62


def endless_bundle(directory, bundle, make, file="classifier.onnx"):
    """A copy of a bundle of which one graph goes on for ever, as `make` says, before it gives what it gave."""
    shutil.copytree(bundle, directory)
    path = directory / file
    model = onnx.load(path, load_external_data=False)
    make(model)
    path.write_bytes(model.SerializeToString())
    manifest = json_format.Parse((directory / "bundle.json").read_text(), bundle_pb2.BundleManifest())
    (entry,) = (each for each in manifest.files if each.path == file)
    entry.size_bytes, entry.sha256 = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    (directory / "bundle.json").write_text(json_format.MessageToJson(manifest))
    return directory


def loop_in_a_run(model):
    """Each run adds nothing to its first output, for ever."""
    _tap(model, lambda name: _loop(name, f"{name}-looped"))


def constant_loop(model):
    """The same with a loop over constants alone."""
    _give(model, "nought", np.zeros(1, np.float32))
    loops = _loop("nought", "still-nought")
    _tap(model, lambda name: [*loops, helper.make_node("Add", [name, "still-nought"], [f"{name}-looped"])])


def endless_folding(model, num=4000, size=1500):
    """A product of constants of so many factors, which are computed when the graph is opened."""
    _give(model, "folded-shape", np.array([size, size]))
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [1e-4])
    nodes = [helper.make_node("ConstantOfShape", ["folded-shape"], ["folded-0"], value=value)]
    nodes += [helper.make_node("MatMul", ["folded-0", f"folded-{at}"], [f"folded-{at + 1}"]) for at in range(num)]
    nodes += [
        helper.make_node("ReduceSum", [f"folded-{num}"], ["folded-sum"], keepdims=0),
        helper.make_node("Mul", ["folded-sum", "folded-nought"], ["folded-nothing"]),
    ]
    _give(model, "folded-nought", np.zeros((), np.float32))
    _tap(model, lambda name: [*nodes, helper.make_node("Add", [name, "folded-nothing"], [f"{name}-looped"])])


def _loop(name, result):
    body_in = [_value("turn", TensorProto.INT64, []), _value("go", TensorProto.BOOL, []), _value("so-far")]
    body_out = [_value("go-on", TensorProto.BOOL, []), _value("then")]
    nodes = [helper.make_node("Identity", ["go"], ["go-on"]), helper.make_node("Add", ["so-far", "zero"], ["then"])]
    zero = numpy_helper.from_array(np.zeros(1, np.float32), "zero")
    body = helper.make_graph(nodes, "body", body_in, body_out, [zero])
    count = helper.make_node("Constant", [], ["forever"], value=numpy_helper.from_array(np.array(FOREVER), "n"))
    true = helper.make_node("Constant", [], ["true"], value=numpy_helper.from_array(np.array(True), "t"))
    return [count, true, helper.make_node("Loop", ["forever", "true", name], [result], body=body)]


def _tap(model, nodes_of):
    """Let the first output of a graph come from other nodes, which read what it was."""
    name = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = [f"{name}-before" if each == name else each for each in node.output]
        node.input[:] = [f"{name}-before" if each == name else each for each in node.input]
    model.graph.node.extend(nodes_of(f"{name}-before"))
    last = model.graph.node[-1]
    last.output[:] = [name]


def _give(model, name, array):
    model.graph.initializer.append(numpy_helper.from_array(array, name))


def _value(name, kind=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)
