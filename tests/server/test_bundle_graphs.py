"""A graph of a bundle reads nothing outside of it, and is what the manifest says."""

import pytest
from onnx import TensorProto, helper

from drafts import refused, translate


def _external(**entries):
    tensor = TensorProto(name="evil", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


ENTRIES = {
    "parent": ({"location": "../secret"}, "lies in '../secret'"),
    "absolute": ({"location": "/etc/passwd"}, "lies in '/etc/passwd'"),
    "memory": ({"location": "*/_ORT_MEM_ADDR_/*", "offset": "4096"}, "lies in '*/_ORT_MEM_ADDR_/*'"),
    "detour": ({"location": "./weights.data"}, "lies in './weights.data'"),
    "nowhere": ({"offset": "0"}, "lies in ''"),
    "beyond": ({"location": "weights.data", "offset": "8", "length": "16"}, "ends at byte 24"),
    "behind": ({"location": "weights.data", "offset": "17"}, "ends at byte 17"),
    "negative": ({"location": "weights.data", "offset": "-1"}, "offset or length '-1'"),
    "not a number": ({"location": "weights.data", "length": "0x10"}, "offset or length '0x10'"),
    "other digits": ({"location": "weights.data", "length": "\u0661"}, "offset or length '\u0661'"),
    "unknown key": ({"location": "weights.data", "basepath": "/"}, "unknown key 'basepath'"),
}


@pytest.mark.parametrize(("entries", "text"), ENTRIES.values(), ids=ENTRIES)
def test_external_data_stays_in_the_bundle(tmp_path, entries, text):
    """External data lies in a listed file, within its size, under known keys, or the bundle is refused."""
    draft = translate(tmp_path / "tiny" / "1")
    draft.models["decoder.onnx"].graph.initializer.append(_external(**entries))
    assert text in refused(draft.write())


def test_a_key_given_twice_is_refused(tmp_path):
    """Two locations for one tensor are refused: two readers could each take another one."""
    draft = translate(tmp_path / "tiny" / "1")
    draft.models["decoder.onnx"].graph.initializer[0].external_data.add(key="location", value="../secret")
    assert "has a key twice" in refused(draft.write())


def _hide_in_attribute(model, tensor):
    model.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor))


def _hide_in_subgraph(model, tensor):
    branch = helper.make_graph([], "branch", [], [], [tensor])
    model.graph.node.append(helper.make_node("If", ["c"], ["r"], then_branch=branch, else_branch=branch))


def _hide_in_sparse(model, tensor):
    model.graph.sparse_initializer.add().indices.CopyFrom(tensor)


def _hide_in_function(model, tensor):
    nodes = [helper.make_node("Constant", [], ["y"], value=tensor)]
    model.functions.append(helper.make_function("", "F", [], ["y"], nodes, [helper.make_opsetid("", 20)]))


def _hide_in_training(model, tensor):
    model.training_info.add().initialization.initializer.append(tensor)


HIDING_PLACES = [_hide_in_attribute, _hide_in_subgraph, _hide_in_sparse, _hide_in_function, _hide_in_training]


@pytest.mark.parametrize("hide", HIDING_PLACES)
def test_external_data_is_found_wherever_it_hides(tmp_path, hide):
    """Every tensor of a model is searched, not only the initialisers of its main graph."""
    draft = translate(tmp_path / "tiny" / "1")
    hide(draft.models["explain.onnx"], _external(location="../../secret"))
    assert "lies in '../../secret'" in refused(draft.write())


def _foreign_op(draft):
    draft.models["encoder.onnx"].graph.node.append(helper.make_node("Evil", [], ["y"], domain="ai.onnx.contrib"))


def _engine_op(draft):
    draft.models["encoder.onnx"].graph.node.append(helper.make_node("EPContext", [], ["y"], domain="com.microsoft"))


def _session_options(draft):
    draft.models["encoder.onnx"].metadata_props.add(key="ort_config", value="{}")


def _other_port_type(draft):
    draft.models["encoder.onnx"].graph.input[1].type.tensor_type.elem_type = TensorProto.INT64


def _other_port_name(draft):
    draft.models["encoder.onnx"].graph.input[1].name = "mask"


def _other_port_shape(draft):
    draft.models["decoder.onnx"].graph.output[3].type.tensor_type.shape.dim[1].dim_value = 21


def _port_too_many(draft):
    draft.models["decoder.onnx"].graph.output.add(name="extra")


def _small_table(draft, path="encoder.onnx"):
    table = helper.make_tensor("table", TensorProto.FLOAT, [19, 1], [0.0] * 19)
    draft.models[path].graph.initializer.append(table)
    draft.models[path].graph.node.append(helper.make_node("Gather", ["table", "input_ids"], ["x"]))


def _small_output_table(draft):
    _small_table(draft, "decoder.onnx")


def _no_onnx(draft):
    draft.files["encoder.onnx"] = b"\xff" * 40
    del draft.models["encoder.onnx"]


def _other_suffix(draft):
    draft.files["encoder.ort"] = draft.models["encoder.onnx"].SerializeToString()
    draft.manifest.graphs[0].path = "encoder.ort"


def _unlisted_graph(draft):
    draft.manifest.graphs[0].path = "../encoder.onnx"


GRAPHS = {
    _foreign_op: "uses ops of domain 'ai.onnx.contrib'",
    _engine_op: "uses EPContext",
    _session_options: "carries session options",
    _other_port_type: "lengths INT64[batch] among its inputs; the manifest says lengths INT32[batch]",
    _other_port_name: "mask INT32[batch] among its inputs",
    _other_port_shape: "logits FLOAT[batch, 21] among its outputs; the manifest says logits FLOAT[batch, 20]",
    _port_too_many: "decoder.onnx has 7 outputs; the manifest says 6",
    _small_table: "text.source_vocab_size is 20; encoder.onnx has a table of 19 ids",
    _small_output_table: "text.target_vocab_size is 20; decoder.onnx has a table of 19 ids",
    _no_onnx: "encoder.onnx is not an ONNX model",
    _other_suffix: "'encoder.ort' is no listed .onnx file",
    _unlisted_graph: "'../encoder.onnx' is no listed .onnx file",
}


@pytest.mark.parametrize(("change", "text"), GRAPHS.items(), ids=[change.__name__ for change in GRAPHS])
def test_graphs_that_are_not_as_stated_are_refused(tmp_path, change, text):
    """A graph that is no ONNX, uses ops beyond the allowed ones or has other ports than the manifest is refused."""
    draft = translate(tmp_path / "tiny" / "1")
    change(draft)
    assert text in refused(draft.write())
