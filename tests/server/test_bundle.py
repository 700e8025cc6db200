"""A bundle is loaded whole or refused with one clear sentence, before anything in it is run."""

import hashlib
import os
from pathlib import Path

import onnx
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from weft_proto.v1 import bundle_pb2 as pb
from weft_proto.v1 import common_pb2
from weft_server.bundle import load_bundle
from weft_server.errors import BundleError

DTYPES = {
    "f": (pb.DATA_TYPE_FLOAT32, TensorProto.FLOAT),
    "i": (pb.DATA_TYPE_INT32, TensorProto.INT32),
    "l": (pb.DATA_TYPE_INT64, TensorProto.INT64),
    "b": (pb.DATA_TYPE_INT8, TensorProto.INT8),
}
KINDS = {data_type: kind for kind, (data_type, _) in DTYPES.items()}

TEXT_IN = {"input_ids": ("l", ["batch", "seq"]), "lengths": ("i", ["batch"])}
IMAGE_IN = {"pixel_values": ("f", ["batch", 1, 8, 8])}
CACHE = ("f", ["batch", 2, 16, 4])
MEMORY = ("f", ["batch", 2, 12, 4])
DECODER_IN = {
    "input_ids": ("l", ["batch", "seq"]),
    "past_lengths": ("i", ["batch"]),
    "lengths": ("i", ["batch"]),
    "total_length": ("i", [1]),
}
DECODER_OUT = {
    "topk_logits": ("f", ["batch", 5]),
    "topk_ids": ("l", ["batch", 5]),
    "logsumexp": ("f", ["batch"]),
    "logits": ("f", ["batch", 20]),
}
CACHE_STATE = pb.StateTensor(
    kind=pb.STATE_KIND_KV_CACHE,
    past="past_key_values.0.key",
    present="present.0.key",
    data_type=pb.DATA_TYPE_FLOAT32,
    shape=[2, 16, 4],
    length_axis=1,
)
MEMORY_STATE = pb.StateTensor(
    kind=pb.STATE_KIND_MEMORY,
    past="memory.0.key",
    present="present_memory.0.key",
    data_type=pb.DATA_TYPE_FLOAT32,
    shape=[2, 12, 4],
    length_axis=1,
    encoder_output="memory_out.0.key",
)

RECURRENT_STATE = pb.StateTensor(
    kind=pb.STATE_KIND_RECURRENT,
    past="past_recurrent.0",
    present="present_recurrent.0",
    data_type=pb.DATA_TYPE_FLOAT32,
    shape=[6],
    encoder_output="recurrent_out.0",
)
READ_ONLY_STATE = pb.StateTensor(
    kind=pb.STATE_KIND_MEMORY,
    past="memory.0",
    data_type=pb.DATA_TYPE_FLOAT32,
    shape=[12, 4],
    encoder_output="memory_out.0",
)


def _model(inputs: dict, outputs: dict) -> onnx.ModelProto:
    """A graph with the given ports and one externally stored weight. It is verified, never run."""
    weight = TensorProto(name="weight", data_type=TensorProto.FLOAT, dims=[4])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights.data", "offset": "0", "length": "16"}.items():
        weight.external_data.add(key=key, value=value)
    values = [
        [helper.make_tensor_value_info(name, DTYPES[kind][1], shape) for name, (kind, shape) in ports.items()]
        for ports in (inputs, outputs)
    ]
    graph = helper.make_graph([helper.make_node("Relu", ["weight"], ["unused"])], "graph", *values, [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


class _Draft:
    """A bundle still open to changes: `write` makes it consistent again, so that only the change is wrong."""

    def __init__(self, directory: Path, task: int) -> None:
        self.directory = directory
        self.models: dict[str, onnx.ModelProto] = {}
        self.manifest = pb.BundleManifest(format_version=1, task=task, family="tiny", precision=pb.PRECISION_FP32)
        self.files = {"weights.data": bytes(16)}
        directory.mkdir(parents=True)

    def graph(self, role: int, path: str, inputs: dict, outputs: dict) -> None:
        self.models[path] = _model(inputs, outputs)
        graph = self.manifest.graphs.add(role=role, path=path)
        for ports, stated in ((inputs, graph.inputs), (outputs, graph.outputs)):
            for name, (kind, shape) in ports.items():
                stated.add(name=name, data_type=DTYPES[kind][0], shape=map(str, shape))

    def write(self) -> Path:
        for path, model in self.models.items():
            self.files[path] = model.SerializeToString()
        del self.manifest.files[:]
        for path, data in self.files.items():
            (self.directory / path).write_bytes(data)
            self.manifest.files.add(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        self.write_manifest()
        return self.directory

    def write_manifest(self) -> None:
        (self.directory / "bundle.json").write_text(json_format.MessageToJson(self.manifest))


def _with_text(draft: _Draft, **more: object) -> _Draft:
    draft.files["tokenizer.json"] = b"{}"
    draft.manifest.text.CopyFrom(pb.TextSpec(source_tokenizer="tokenizer.json", source_vocab_size=20, **more))
    draft.manifest.golden.text = "hello"
    return draft


def _with_image(draft: _Draft) -> _Draft:
    draft.files["golden.png"] = b"png"
    spec = pb.ImageSpec(channels=1, height=8, width=8, resample=pb.RESAMPLE_BOX, mean=[0.5], std=[0.5])
    spec.grid_rows, spec.grid_columns = 3, 4
    draft.manifest.image.CopyFrom(spec)
    draft.manifest.golden.image_path = "golden.png"
    return draft


def _with_labels(draft: _Draft) -> _Draft:
    draft.manifest.labels.extend(["good", "bad", "ugly"])
    draft.manifest.golden.probabilities.extend([0.5, 0.25, 0.25])
    return draft


def _with_decoder(draft: _Draft, *states: pb.StateTensor, more: dict | None = None) -> _Draft:
    draft.manifest.states.extend(states)
    draft.manifest.decoding.max_new_tokens = 8
    draft.manifest.golden.token_ids.extend([3, 4, 2])
    ports = [(state, (KINDS[state.data_type], ["batch", *state.shape])) for state in states]
    inputs = {state.past: port for state, port in ports}
    outputs = {state.present: port for state, port in ports if state.present}
    remembers = any(state.kind == pb.STATE_KIND_MEMORY for state in states)
    lengths = {"memory_lengths": ("i", ["batch"])} if remembers else {}
    inputs = DECODER_IN | lengths | (more or {}) | inputs
    draft.graph(pb.GRAPH_ROLE_DECODER, "decoder.onnx", inputs, DECODER_OUT | outputs)
    return draft


def _with_explain(draft: _Draft, source: dict, rows: object, columns: object, *, default_layer: int | None) -> _Draft:
    inputs = source | {"layer": ("l", [1]), "head": ("l", [1])}
    outputs = {"weights": ("f", [rows, columns]), "source_mass": ("f", [rows])}
    draft.graph(pb.GRAPH_ROLE_EXPLAIN, "explain.onnx", inputs, outputs)
    draft.manifest.attention.CopyFrom(pb.Attention(heads=[2, 4], default_layer=default_layer))
    return draft


TARGET_IN = {"target_ids": ("l", [1, "target"])}
TARGET = {
    "target_tokenizer": "tokenizer.json",
    "target_vocab_size": 20,
    "end_ids": [2],
    "max_total_tokens": 16,
    "max_new_tokens": 10,
}


def _translate(directory: Path) -> _Draft:
    draft = _with_text(_Draft(directory, common_pb2.TASK_TRANSLATE), start_id=1, max_source_tokens=12, **TARGET)
    memory_out = {"memory_out.0.key": ("f", ["batch", 2, "seq", 4])}
    draft.graph(pb.GRAPH_ROLE_ENCODER, "encoder.onnx", TEXT_IN, memory_out)
    _with_explain(draft, TEXT_IN | TARGET_IN, "target", "seq", default_layer=1)
    return _with_decoder(draft, CACHE_STATE, MEMORY_STATE)


def _translate_with_rnn(directory: Path) -> _Draft:
    """A state that the encoder starts, and a memory that steps only read."""
    draft = _with_text(_Draft(directory, common_pb2.TASK_TRANSLATE), start_id=1, max_source_tokens=12, **TARGET)
    encoded = {"memory_out.0": ("f", ["batch", "seq", 4]), "recurrent_out.0": ("f", ["batch", 6])}
    draft.graph(pb.GRAPH_ROLE_ENCODER, "encoder.onnx", TEXT_IN, encoded)
    _with_explain(draft, TEXT_IN | TARGET_IN, "target", "seq", default_layer=0)
    draft.manifest.text.prefixes.extend(["translate: ", "summarise: "])
    return _with_decoder(draft, RECURRENT_STATE, READ_ONLY_STATE)


def _caption(directory: Path) -> _Draft:
    draft = _with_image(_Draft(directory, common_pb2.TASK_CAPTION))
    draft.files["tokenizer.json"] = b"{}"
    draft.manifest.text.CopyFrom(pb.TextSpec(start_id=1, **TARGET))
    memory_out = {"memory_out.0.key": ("f", ["batch", 2, 12, 4])}
    draft.graph(pb.GRAPH_ROLE_ENCODER, "encoder.onnx", IMAGE_IN, memory_out)
    _with_explain(draft, IMAGE_IN | TARGET_IN, "target", 12, default_layer=0)
    return _with_decoder(draft, CACHE_STATE, MEMORY_STATE)


def _generate(directory: Path) -> _Draft:
    draft = _with_decoder(_with_text(_Draft(directory, common_pb2.TASK_GENERATE), **TARGET), CACHE_STATE)
    one = {"input_ids": ("l", [1, "seq"]), "lengths": ("i", [1])}
    return _with_explain(draft, one | TARGET_IN, "rows", "seq", default_layer=1)


def _generate_mixed(directory: Path) -> _Draft:
    """With a graph that reads a prompt beside rows, and both are told what is read of them."""
    one = ("i", [1])
    draft = _with_text(_Draft(directory, common_pb2.TASK_GENERATE), **TARGET)
    _with_decoder(draft, CACHE_STATE, more={"reads_all": one})
    rows = {"input_ids": ("l", ["batch", 1]), "past_lengths": ("i", ["batch"])}
    prompt = {"prompt_ids": ("l", [1, "seq"]), "prompt_past_lengths": one, "prompt_lengths": one}
    lone = ("f", [1, 2, 16, 4])
    states = {CACHE_STATE.past: CACHE, f"prompt.{CACHE_STATE.past}": lone}
    presents = {CACHE_STATE.present: CACHE, f"prompt.{CACHE_STATE.present}": lone}
    inputs = rows | prompt | {"total_length": one, "reads_all": one} | states
    draft.graph(pb.GRAPH_ROLE_MIXED, "mixed.onnx", inputs, DECODER_OUT | presents)
    return draft


def _generate_with_levels(directory: Path) -> _Draft:
    """At int8, with one state of int8 and one of float32."""
    draft = _with_text(_Draft(directory, common_pb2.TASK_GENERATE), **TARGET)
    draft.manifest.precision = pb.PRECISION_INT8
    levels = pb.StateTensor()
    levels.CopyFrom(CACHE_STATE)
    levels.past, levels.present, levels.data_type = "past_levels", "present_levels", pb.DATA_TYPE_INT8
    return _with_decoder(draft, CACHE_STATE, levels)


def _classify_text(directory: Path) -> _Draft:
    draft = _with_labels(_with_text(_Draft(directory, common_pb2.TASK_CLASSIFY_TEXT), max_source_tokens=12))
    draft.graph(pb.GRAPH_ROLE_CLASSIFIER, "model.onnx", TEXT_IN, {"probabilities": ("f", ["batch", 3])})
    return draft


def _tag(directory: Path) -> _Draft:
    draft = _with_labels(_with_text(_Draft(directory, common_pb2.TASK_TAG), max_source_tokens=12))
    draft.manifest.golden.probabilities.extend([0.0, 1.0, 0.0])
    draft.manifest.precision = pb.PRECISION_INT8
    quality = pb.Quality(metric="span_f1", score=1, fp32_score=1, num_examples=9, min_share=0.99)
    draft.manifest.quality.CopyFrom(quality)
    draft.graph(pb.GRAPH_ROLE_TAGGER, "model.onnx", TEXT_IN, {"probabilities": ("f", ["batch", "seq", 3])})
    return _with_explain(draft, TEXT_IN, "seq", "seq", default_layer=None)


def _classify_image(directory: Path) -> _Draft:
    draft = _with_labels(_with_image(_Draft(directory, common_pb2.TASK_CLASSIFY_IMAGE)))
    draft.graph(pb.GRAPH_ROLE_CLASSIFIER, "model.onnx", IMAGE_IN, {"probabilities": ("f", ["batch", 3])})
    return _with_explain(draft, IMAGE_IN, 1, 12, default_layer=None)


MAKERS = [
    _translate,
    _translate_with_rnn,
    _caption,
    _generate,
    _generate_with_levels,
    _generate_mixed,
    _classify_text,
    _classify_image,
    _tag,
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_sound_bundle_of_each_task_loads(tmp_path, make):
    """A bundle that keeps the contract loads, with its name and version from where it lies."""
    draft = make(tmp_path / "tiny" / "3")
    bundle = load_bundle(draft.write())
    assert ("tiny", 3) == (bundle.name, bundle.version)
    assert draft.manifest == bundle.manifest
    for graph in bundle.manifest.graphs:
        assert bundle.path(graph.path).is_file()
        assert bundle.graph(graph.role) == graph


def _refused(directory: Path) -> str:
    with pytest.raises(BundleError) as error:
        load_bundle(directory)
    assert "\n" not in str(error.value)
    return str(error.value)


# What can be wrong with the files -------------------------------------------------------------------------------------


def _flip_a_bit(directory: Path) -> None:
    (directory / "weights.data").write_bytes(b"\1" + bytes(15))


def _replace_by_symlink(directory: Path) -> None:
    (directory / "weights.data").rename(directory.parent / "elsewhere")
    (directory / "weights.data").symlink_to("../elsewhere")


def _replace_by_fifo(directory: Path) -> None:
    (directory / "weights.data").unlink()
    os.mkfifo(directory / "weights.data")


def _grow_tokenizer(directory: Path) -> None:
    path = directory / "bundle.json"
    path.write_text(path.read_text().replace('"sizeBytes": "2"', '"sizeBytes": "67108865"'))


FILES = {
    "a missing file": (lambda d: (d / "weights.data").unlink(), "weights.data is missing"),
    "a missing manifest": (lambda d: (d / "bundle.json").unlink(), "bundle.json is missing"),
    "a wrong digest": (_flip_a_bit, "weights.data has sha256"),
    "a wrong size": (lambda d: (d / "weights.data").write_bytes(bytes(15)), "15 bytes; the manifest says 16"),
    "a symbolic link": (_replace_by_symlink, "weights.data is a symbolic link"),
    "a hard link": (lambda d: os.link(d / "weights.data", d.parent / "twin"), "weights.data is a hard link"),
    "a tokenizer too large": (_grow_tokenizer, "tokenizer.json has 67,108,865 bytes; of such a file at most"),
    "a manifest too large": (
        lambda d: (d / "bundle.json").write_text('{"labels": [' + '"",' * 5_500_000 + '""]}'),
        "bundle.json has 16500016 bytes; at most 8388608 are read",
    ),
    "too many entries": (
        lambda d: (d / "bundle.json").write_text('{"golden": {"probabilities": [' + "1, " * 2_700_000 + "1]}}"),
        "bundle.json has more than 400,000 entries",
    ),
    "a number too long": (lambda d: (d / "bundle.json").write_text("1" * 5000), "not a BundleManifest in JSON"),
    "a fifo": (_replace_by_fifo, "weights.data is not a regular file"),
    "a file too many": (lambda d: (d / "libcustom.so").touch(), "libcustom.so is not listed"),
    "a folder too many": (lambda d: (d / "more").mkdir(), "more is not listed"),
    "no JSON": (lambda d: (d / "bundle.json").write_text("{"), "not a BundleManifest in JSON"),
    "no UTF-8": (lambda d: (d / "bundle.json").write_bytes(b"\xff"), "not a BundleManifest in JSON"),
    "endless nesting": (lambda d: (d / "bundle.json").write_text("[" * 100_000), "not a BundleManifest in JSON"),
    "an unknown field": (
        lambda d: (d / "bundle.json").write_text('{"formatVersion": 1, "sessionOptions": {}}'),
        "sessionOptions",
    ),
    "another format": (lambda d: (d / "bundle.json").write_text('{"formatVersion": 2}'), "format_version 2"),
}


@pytest.mark.parametrize(("change", "text"), FILES.values(), ids=FILES)
def test_files_that_differ_are_refused(tmp_path, change, text):
    """A bundle whose files are not exactly the listed ones is refused, and the sentence names the file."""
    directory = _translate(tmp_path / "tiny" / "1").write()
    change(directory)
    assert text in _refused(directory)


@pytest.mark.parametrize("name", ["../weights.data", "/etc/passwd", "a/b", "", ".", "..", "bundle.json", "a\n", "ä"])
def test_file_names_are_plain(tmp_path, name):
    """A listed name that is a path, is special or has other characters is refused before anything is opened."""
    draft = _translate(tmp_path / "tiny" / "1")
    draft.write()
    draft.manifest.files.add(path=name, sha256="0" * 64)
    draft.write_manifest()
    assert f"file name {name!r} is not allowed" in _refused(draft.directory)


def test_a_file_is_listed_once(tmp_path):
    """A file listed twice is refused: two digests cannot both be meant."""
    draft = _translate(tmp_path / "tiny" / "1")
    draft.write()
    draft.manifest.files.append(draft.manifest.files[0])
    draft.write_manifest()
    assert "is listed twice" in _refused(draft.directory)


# What can be wrong with the graphs ------------------------------------------------------------------------------------


def _external(**entries: str) -> TensorProto:
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
    draft = _translate(tmp_path / "tiny" / "1")
    draft.models["decoder.onnx"].graph.initializer.append(_external(**entries))
    assert text in _refused(draft.write())


def test_a_key_given_twice_is_refused(tmp_path):
    """Two locations for one tensor are refused: two readers could each take another one."""
    draft = _translate(tmp_path / "tiny" / "1")
    draft.models["decoder.onnx"].graph.initializer[0].external_data.add(key="location", value="../secret")
    assert "has a key twice" in _refused(draft.write())


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
    draft = _translate(tmp_path / "tiny" / "1")
    hide(draft.models["explain.onnx"], _external(location="../../secret"))
    assert "lies in '../../secret'" in _refused(draft.write())


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
    draft = _translate(tmp_path / "tiny" / "1")
    change(draft)
    assert text in _refused(draft.write())


# What can be wrong with the manifest ----------------------------------------------------------------------------------

MANIFESTS = [
    (_translate, "m.task = 99", "task 99 is unknown"),
    (_translate, "m.precision = 0", "precision 0 is unknown"),
    (_translate, "del m.graphs[0]", "needs a ENCODER graph"),
    (_translate, "m.graphs.append(m.graphs[0])", "a graph role is there twice"),
    (_generate, "m.graphs.add(role=1)", "has no ENCODER graph"),
    (_tag, "m.graphs[0].role = 3", "needs a TAGGER graph"),
    (_classify_text, "m.graphs.add(role=4)", "attention is for bundles with an EXPLAIN graph"),
    (_classify_text, "m.attention.heads.append(2)", "attention is for bundles with an EXPLAIN graph"),
    (_tag, "m.ClearField('attention')", "attention is for bundles with an EXPLAIN graph"),
    (_tag, "del m.attention.heads[:]", "attention.heads is empty"),
    (_tag, "m.attention.heads.append(0)", "attention.heads has a layer without heads"),
    (_tag, "m.attention.default_layer = 2", "attention.default_layer 2 is not one of 2 layers"),
    (_generate, "m.text.prefixes.append('x')", "text.prefixes are for translate"),
    (_tag, "m.text.prefixes.append('x')", "text.prefixes are for translate"),
    (_translate, "m.text.prefixes.append('')", "text.prefixes has an empty one"),
    (_translate, "m.text.prefixes.extend(['x', 'x'])", "text.prefixes are not distinct"),
    (
        _translate,
        "m.text.target_languages.extend(['es', 'es'])",
        "text.target_languages has an empty one, or one twice",
    ),
    (_translate, "m.text.source_languages.append('')", "text.source_languages has an empty one, or one twice"),
    (_translate, "m.ClearField('text')", "text is missing"),
    (_translate, "m.image.height = 3", "image is for tasks that take one"),
    (_caption, "m.ClearField('image')", "image is for tasks that take one"),
    (_translate, "m.text.source_tokenizer = 'other.json'", "source tokenizer 'other.json'"),
    (_caption, "m.text.target_tokenizer = '../tokenizer.json'", "target tokenizer '../tokenizer.json'"),
    (_classify_text, "m.text.source_vocab_size = 0", "source_vocab_size"),
    (_classify_text, "m.text.pad_id = 20", "pad_id 20 is outside"),
    (_classify_text, "m.text.max_source_tokens = 0", "max_source_tokens is missing"),
    (_translate, "m.text.ClearField('start_id')", "start_id is for translate and caption"),
    (_generate, "m.text.start_id = 0", "start_id is for translate and caption"),
    (_translate, "m.text.start_id = 20", "start_id 20 is outside"),
    (_generate, "m.text.end_ids.append(20)", "end_ids has an id outside"),
    (_generate, "m.text.max_new_tokens = 17", "max_new_tokens is not in [1, max_total_tokens]"),
    (_generate, "m.decoding.max_new_tokens = 11", "decoding.max_new_tokens is not in"),
    (_generate, "m.text.max_total_tokens = m.text.max_new_tokens = 1", "leaves a prompt no room"),
    (_generate, "m.states[0].shape[:] = [2**30, 16, 4]", "has 68,719,476,736 elements, over 4,294,967,296"),
    (_generate, "m.graphs[0].outputs[3].shape[1] = 'vocab'", "'logits' has shape ['batch', 'vocab']"),
    (_generate, "m.graphs[0].inputs[4].shape[2] = 'length'", "has shape ['batch', '2', 'length', '4']"),
    (_generate, "m.ClearField('decoding')", "decoding.max_new_tokens is not in"),
    (_caption, "m.image.channels = 2", "channels is 2"),
    (_caption, "m.image.width = 5000", "image.width is 5000; it must be from 1 to 4,096"),
    (_caption, "m.image.width = 0", "image.height and width are missing"),
    (_caption, "m.image.resample = 0", "resample 0 is unknown"),
    (_caption, "m.image.mean.append(0.5)", "image.mean has 2 values for 1 channels"),
    (_caption, "m.image.mean[0] = float('nan')", "image.mean[0] is nan"),
    (_caption, "m.image.std[0] = 0", "image.std[0] is 0.0"),
    (_caption, "m.image.grid_rows = 0", "grid_rows and grid_columns are missing"),
    (_caption, "m.image.grid_rows = m.image.grid_columns = 4096", "grid_rows times grid_columns is 16,777,216"),
    (_caption, "m.image.grid_rows = 4", "holds 12 source positions; 16 are needed"),
    (_translate, "m.text.max_source_tokens = 13", "holds 12 source positions; 13 are needed"),
    (_generate, "m.text.max_total_tokens = 15", "holds 16 tokens; text.max_total_tokens is 15"),
    (_generate, "del m.states[:]", "states are missing"),
    (_classify_text, "m.states.add()", "states are for tasks that produce text"),
    (_tag, "m.states.add()", "states are for tasks that produce text"),
    (_generate, "m.states[0].past = ''", "a state has no past"),
    (_generate, "m.states[0].present = ''", "has no present, and is no memory"),
    (_translate_with_rnn, "m.states[0].present = ''", "has no present, and is no memory"),
    (_translate_with_rnn, "m.states[1].present = 'other'", "decoder.onnx has no output 'other'"),
    (_translate_with_rnn, "m.states[0].encoder_output = ''", "encoder.onnx has an output 'recurrent_out.0'"),
    (_translate, "m.states[1].past = m.states[0].past", "share a port"),
    (_generate, "m.states[0].kind = 0", "unknown kind 0"),
    (_generate, "m.states[0].shape[0] = 0", "zero or no sizes"),
    (_generate, "m.states[0].length_axis = 3", "length_axis 3 outside its shape"),
    (
        _generate,
        "m.states[0].length_axis = 2",
        "is a kv_cache and not [kv_heads, max_len, head_dim] with length_axis 1",
    ),
    (_generate, "m.states[0].data_type = 2", "not of the bundle's precision"),
    (_generate, "m.states[0].data_type = 6", "not of the bundle's precision"),
    (_generate_mixed, "m.graphs[1].inputs[2].name = 'ids'", "mixed.onnx has no input 'prompt_ids'"),
    (_generate_mixed, "m.graphs[1].inputs[-1].shape[0] = '2'", "mixed.onnx: 'prompt.past_key_values.0.key' has shape"),
    (
        _generate_mixed,
        "m.graphs[1].outputs[0].shape[1] = m.graphs[1].outputs[1].shape[1] = '6'",
        "the MIXED graph has another number of candidates",
    ),
    (_generate_mixed, "del m.graphs[1].inputs[-3]", "only one has an input 'reads_all'"),
    (_generate_mixed, "m.graphs[0].inputs[4].data_type = 4", "'reads_all' has the wrong data_type"),
    (_generate_mixed, "m.graphs[0].inputs[4].shape[0] = '2'", "'reads_all' has shape"),
    (_generate_mixed, "m.states[0].kind = 3", "a MIXED graph is not for a model with a recurrent state"),
    (_translate, "m.graphs[1].role = 6", "TASK_TRANSLATE has no MIXED graph"),
    (_translate_with_rnn, "m.precision = 4; m.states[0].data_type = 6", "not of the bundle's precision"),
    (_translate, "m.states[0].encoder_output = 'x'", "not filled by an encoder"),
    (_translate, "m.states[1].encoder_output = ''", "has no encoder_output"),
    (_generate, "m.states[0].encoder_output = 'x'", "waits for an encoder"),
    (_classify_image, "del m.labels[:]", "labels are missing"),
    (_classify_image, "m.labels[1] = 'good'", "labels are not distinct"),
    (_tag, "m.quality.num_examples = 0", "quality.metric and num_examples are missing"),
    (_tag, "m.quality.score = 1.5", "quality.score is 1.5"),
    (_tag, "m.quality.score = 0.98", "less than its min_share"),
    (_generate, "m.ClearField('golden')", "golden is missing"),
    (_generate, "m.golden.text = ''", "golden.text is missing"),
    (_caption, "m.golden.image_path = 'other.png'", "golden image 'other.png'"),
    (_generate, "del m.golden.token_ids[:]", "golden.token_ids are missing"),
    (_generate, "m.golden.token_ids.append(20)", "id outside the target vocabulary"),
    (_generate, "m.golden.token_ids.extend(range(10))", "more than text.max_new_tokens"),
    (_classify_text, "m.golden.probabilities.append(0)", "4 probabilities for 3 labels"),
    (_classify_text, "m.golden.probabilities[0] = 1", "no distribution"),
    (_classify_text, "m.golden.probabilities[:] = [float('inf'), -float('inf'), 1]", "golden.probabilities[0] is inf"),
    (_classify_text, "m.golden.probabilities[0] = float('nan')", "golden.probabilities[0] is nan"),
    (_tag, "m.golden.probabilities.append(0)", "7 probabilities, which are no rows of 3 labels"),
    (_tag, "del m.golden.probabilities[:]", "0 probabilities, which are no rows of 3 labels"),
    (_tag, "m.golden.probabilities.extend([1, 0, 0] * 11)", "more tokens than text.max_source_tokens"),
    (_tag, "m.golden.probabilities[5] = 1", "no distribution"),
    (_tag, "del m.labels[:]", "labels are missing"),
    (_generate, "m.golden.probabilities.append(1)", "golden.probabilities are for tasks that classify"),
    (_classify_text, "m.golden.token_ids.append(1)", "golden.token_ids are for tasks that produce text"),
    (_caption, "m.text.source_tokenizer = '../other.json'", "tokenizer '../other.json' is not a file of the bundle"),
    (_classify_text, "m.text.target_tokenizer = '/dev/zero'", "tokenizer '/dev/zero' is not a file of the bundle"),
    (_translate, "del m.graphs[2].inputs[0]", "decoder.onnx has no input 'input_ids'"),
    (_translate, "m.graphs[2].inputs.add(name='more')", "decoder.onnx has an input 'more'"),
    (_translate, "m.graphs[2].inputs.append(m.graphs[2].inputs[0])", "decoder.onnx has an input twice"),
    (_translate, "m.graphs[2].outputs[0].data_type = 2", "'topk_logits' has the wrong data_type"),
    (_translate, "m.graphs[2].outputs[3].shape[1] = '21'", "'logits' has shape ['batch', '21']"),
    (_translate, "m.graphs[2].outputs[0].shape[1] = '6'", "not of one fixed width"),
    (_translate, "m.graphs[2].outputs[0].shape[1] = m.graphs[2].outputs[1].shape[1] = 'k'", "not of one fixed width"),
    (_translate, "m.graphs[0].outputs[0].shape.append('x')", "'memory_out.0.key' has shape"),
    (_translate, "m.states[1].encoder_output = 'other'", "encoder.onnx has no output 'other'"),
    (_translate, "del m.graphs[1].inputs[2]", "explain.onnx has no input 'target_ids'"),
    (_classify_image, "m.graphs[1].inputs.add(name='target_ids')", "has an input 'target_ids' that its role does not"),
    (_tag, "del m.graphs[1].inputs[3]", "explain.onnx has no input 'head'"),
    (_tag, "m.graphs[1].inputs[2].data_type = 3", "'layer' has the wrong data_type"),
    (_tag, "m.graphs[1].inputs[0].shape[0] = '2'", "'input_ids' has shape ['2', 'seq']"),
    (_tag, "del m.graphs[1].outputs[1]", "explain.onnx has no output 'source_mass'"),
    (_caption, "m.graphs[1].outputs[0].shape[1] = '11'", "'weights' has shape ['target', '11']"),
    (_classify_image, "m.graphs[1].outputs[1].shape[0] = '2'", "'source_mass' has shape ['2']"),
    (_tag, "m.graphs[0].outputs[0].shape[2] = '4'", "'probabilities' has shape ['batch', 'seq', '4']"),
]


@pytest.mark.parametrize(("make", "change", "text"), MANIFESTS, ids=[f"{m.__name__}: {c}" for m, c, _ in MANIFESTS])
def test_manifests_that_contradict_themselves_are_refused(tmp_path, make, change, text):
    """A manifest that does not fit its task, or whose parts do not fit each other, is refused."""
    draft = make(tmp_path / "tiny" / "1")
    exec(change, {"m": draft.manifest})
    assert text in _refused(draft.write())


# What nobody thought of -----------------------------------------------------------------------------------------------


def _outcome(directory: Path) -> object:
    try:
        return load_bundle(directory).version
    except BundleError as error:
        return f"refused in {len(str(error).splitlines())} line"


@settings(max_examples=100, deadline=None)
@given(make=st.sampled_from(MAKERS), at=st.integers(0, 4000), garbage=st.binary(min_size=1, max_size=6))
def test_any_damage_to_the_manifest_is_a_bundle_error(tmp_path_factory, make, at, garbage):
    """Whatever bytes are overwritten in bundle.json: a bundle or a one-line BundleError, never another exception."""
    draft = make(tmp_path_factory.mktemp("fuzz") / "tiny" / "1")
    path = draft.write() / "bundle.json"
    data = bytearray(path.read_bytes())
    at %= len(data)
    data[at : at + len(garbage)] = garbage
    path.write_bytes(data)
    assert _outcome(draft.directory) in {1, "refused in 1 line"}


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, 4000), garbage=st.binary(min_size=1, max_size=6))
def test_any_damage_to_a_graph_is_a_bundle_error(tmp_path_factory, at, garbage):
    """Whatever bytes a graph holds, digest and size being right: a bundle or a one-line BundleError."""
    draft = _translate(tmp_path_factory.mktemp("fuzz") / "tiny" / "1")
    data = bytearray(draft.models.pop("decoder.onnx").SerializeToString())
    at %= len(data)
    data[at : at + len(garbage)] = garbage
    draft.files["decoder.onnx"] = bytes(data)
    assert _outcome(draft.write()) in {1, "refused in 1 line"}
