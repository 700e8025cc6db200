"""The graph of a decoder for steps that want the best candidates alone."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from weft_server.errors import BundleError
from weft_server.runtime.cuda.best_only import best_only, open_decoder
from weft_server.runtime.cuda.drawing import TEMPERATURES
from weft_server.runtime.device import Device
from weft_server.runtime.halt import Halt

WIDTH, VOCAB, BEST = 4, 40, 8
FAR = Device(in_place=False)
FLOAT, HALF, BF16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16


def decoder(element_type, *, asks=False):
    """A product, its best numbers, the normaliser and a state that is passed on, as our decoders end."""
    nodes = [
        helper.make_node("MatMul", ["hidden", "weight"], ["product"]),
        helper.make_node("Cast", ["product"], ["logits"], to=FLOAT),
        helper.make_node("TopK", ["logits", "count"], ["topk_logits", "topk_ids"], axis=1),
        helper.make_node("LogSoftmax", ["logits"], ["log_probs"], axis=1),
        helper.make_node("ReduceMax", ["log_probs", "axis"], ["logsumexp"], keepdims=0),
        helper.make_node("Identity", ["past"], ["present"]),
    ]
    inputs = [("hidden", element_type, ["rows", WIDTH]), ("past", FLOAT, ["rows"])]
    inputs += [("reads_all", TensorProto.INT32, [1])] * asks
    outputs = [("topk_logits", FLOAT, ["rows", BEST]), ("topk_ids", TensorProto.INT64, ["rows", BEST])]
    outputs += [("logsumexp", FLOAT, ["rows"]), ("logits", FLOAT, ["rows", VOCAB]), ("present", FLOAT, ["rows"])]
    weight = np.random.default_rng(1).normal(size=(WIDTH, VOCAB)).astype(np.float32)
    dtype = helper.tensor_dtype_to_np_dtype(element_type)
    constants = {"weight": weight.astype(dtype), "count": np.array([BEST]), "axis": np.array([1])}
    graph = helper.make_graph(
        nodes,
        "decoder",
        [helper.make_tensor_value_info(*port) for port in inputs],
        [helper.make_tensor_value_info(*port) for port in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
        value_info=[helper.make_tensor_value_info("product", element_type, ["rows", VOCAB])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("element_type", "tail"),
    [
        (HALF, [("TopK", "product"), ("Cast", "topk_logits.half")]),
        (BF16, [("Cast", "product"), ("TopK", "logits")]),
        (FLOAT, [("Cast", "product"), ("TopK", "logits")]),
    ],
)
def test_what_only_some_runs_ask_for_is_left_out(element_type, tail):
    """The best are looked for among numbers of float16, where they are such. Of bfloat16 all are converted first."""
    model = decoder(element_type)
    cut = best_only(model, 2)
    onnx.checker.check_model(cut, full_check=True)
    assert ["topk_logits", "topk_ids", "present"] == [port.name for port in cut.graph.output]
    assert [2, 2] == [port.type.tensor_type.shape.dim[1].dim_value for port in cut.graph.output[:2]]
    assert [("MatMul", "hidden"), *tail, ("Identity", "past")] == [
        (node.op_type, node.input[0]) for node in cut.graph.node
    ]
    assert decoder(element_type) == model


def test_a_graph_with_a_condition_stays_whole():
    """It leaves the rest out by itself."""
    assert best_only(decoder(FLOAT, asks=True), 2) is None


def test_both_graphs_give_the_same_candidates(tmp_path):
    """Their weights lie in a file, and the server sends them: once, for both."""
    onnx.save(decoder(FLOAT), tmp_path / "d.onnx", save_as_external_data=True, location="d.data", size_threshold=256)
    whole, best = open_decoder(tmp_path / "d.onnx", 1, FAR, Halt(), num_best=3)
    fed = {"hidden": np.ones((2, WIDTH), np.float32), "past": np.zeros(2, np.float32)}

    told = fed | {TEMPERATURES: np.ones(2, np.float32)}
    said = [session.run(told if session is whole else fed) for session in (whole, best)]
    assert {"topk_logits", "topk_ids", "present"} == set(said[1])
    assert 3 == best.width("topk_ids")
    for name, found in said[1].items():
        assert said[0][name][..., :3].tolist() == found.tolist()


@pytest.mark.parametrize("says", [{"length": "64"}, {"length": None, "offset": "320"}, {"offset": "4096"}])
def test_a_file_that_is_too_short_for_a_weight_is_refused(tmp_path, says):
    """What lies behind it in a device's memory is another's."""
    onnx.save(decoder(FLOAT), tmp_path / "d.onnx", save_as_external_data=True, location="d.data", size_threshold=256)
    model = onnx.load(tmp_path / "d.onnx", load_external_data=False)
    (weight,) = [each for each in model.graph.initializer if each.external_data]
    entries = {each.key: each.value for each in weight.external_data} | says
    del weight.external_data[:]
    weight.external_data.extend(
        onnx.StringStringEntryProto(key=key, value=value) for key, value in entries.items() if value is not None
    )
    onnx.save(model, tmp_path / "d.onnx")

    with pytest.raises(BundleError, match=r"d\.data does not hold the 640 bytes of 'weight' that the graph says"):
        open_decoder(tmp_path / "d.onnx", 1, FAR, Halt(), num_best=2)
