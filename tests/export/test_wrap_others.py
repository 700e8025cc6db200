"""`weft wrap` of what third parties publish: other orders of pixels, old opsets, letterboxes, vectors, directories."""

import io
import json
import re

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from test_wrap import complete, opened, wrap
from tiny_parts import byte_tokenizer
from typer.testing import CliRunner

from weft_export.checkpoints.picture import to_pixel_values
from weft_export.errors import CheckpointError
from weft_export.wrapping import adapting, naming
from weft_export.wrapping.command import wrap_app
from weft_export.wrapping.directory import find_model, read_beside
from weft_export.wrapping.onnx_file import read_onnx
from weft_export.wrapping.onnx_model import OnnxModel
from weft_export.wrapping.wrap import vector_of
from weft_proto.resizing import resized_size, resizing_fault
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.preprocessing.images import load_picture

WIDTH = 6
POOLINGS = ("POOLING_FIRST", "POOLING_MEAN", "POOLING_LAST", "POOLING_MAX")


def model_of(nodes, inputs, outputs, weights=(), opset=17):
    """A model of these nodes: (name, type, axes) of each input and output."""
    ports = [[helper.make_tensor_value_info(*each) for each in side] for side in (inputs, outputs)]
    graph = helper.make_graph(
        nodes, "others", *ports, [numpy_helper.from_array(array, name) for name, array in weights]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def viewer(opset=9):
    """A classifier as tf2onnx writes it: channels last, a softmax over a flattened product, names of its own."""
    rng = np.random.default_rng(0)
    product = rng.standard_normal((16 * 16 * 3, 3)).astype(np.float32) / 16
    nodes = [
        helper.make_node("Reshape", ["input:0", "rows"], ["flat"]),
        helper.make_node("MatMul", ["flat", "product"], ["sums"]),
        helper.make_node("Softmax", ["sums"], ["softmax"], axis=1),
        helper.make_node("Identity", ["softmax"], ["outputs"]),
    ]
    weights = [("rows", np.array([-1, 16 * 16 * 3], np.int64)), ("product", product)]
    ports = ("input:0", TensorProto.FLOAT, [-1, 16, 16, 3]), ("outputs", TensorProto.FLOAT, [-1, 3])
    return model_of(nodes, [ports[0]], [ports[1]], weights, opset)


def reader(name="last_hidden_state", inputs=("input_ids", "attention_mask")):
    """An encoder of texts: a vector for each token, and nothing of others."""
    table = np.random.default_rng(1).standard_normal((300, WIDTH)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["table", inputs[0]], [name])]
    ports = [(each, TensorProto.INT64, ["batch", "seq"]) for each in inputs]
    return model_of(nodes, ports, [(name, TensorProto.FLOAT, ["batch", "seq", WIDTH])], [("table", table)])


def test_a_classifier_of_another_house_needs_no_renaming(tmp_path):
    """Channels last, blue first, values up to 255, letterboxes, opset 9, axes of -1 and foreign names are all taken.

    The probabilities are those of ONNX Runtime on the pixels that the file's own code would make.
    """
    complete(tmp_path)
    onnx.save(viewer(), tmp_path / "model.onnx")
    options = ("--task", "classify-image", "--golden", "golden.png", "--image-size", "16", "--resample", "bilinear")
    units = ("--rescale-factor", "1", "--mean", "123,117,104", "--std", "2,2,2", "--bgr", "--pad", "255,0,9")

    assert (0, "") == wrap(tmp_path, *options, *units, "--quiet")
    manifest, session = opened(tmp_path, "classifier.onnx")
    picture = Image.open(tmp_path / "golden.png").convert("RGB")  # 20 x 12
    whole = Image.new("RGB", (16, 16), (255, 0, 9))
    whole.paste(picture.resize((16, 10), Image.Resampling.BILINEAR), (0, 3))
    theirs = ((np.asarray(whole, np.float32) - [123, 117, 104]) / 2)[None, :, :, ::-1].astype(np.float32)
    given = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    expected = given.run(None, {"input:0": theirs})[0][0]
    ours = load_picture((tmp_path / "golden.png").read_bytes(), manifest.image, 10**6, 10**6).pixels
    assert np.allclose(expected, session.run(None, {"pixel_values": ours[None]})[0][0], atol=1e-5)
    assert np.allclose(expected, manifest.golden.probabilities, atol=1e-5)


@pytest.mark.parametrize("opset", [7, 8, 11, 12])
def test_old_opsets_are_brought_to_one_that_is_served(opset, tmp_path):
    """From 7 on, onnx's own converter does it: the answers are those of before."""
    onnx.save(viewer(opset), tmp_path / "old.onnx")
    made = read_onnx(tmp_path / "old.onnx")
    onnx_ir.save(made, tmp_path / "new.onnx")
    pixels = np.random.default_rng(0).standard_normal((2, 16, 16, 3)).astype(np.float32)
    old, new = (
        onnxruntime.InferenceSession(tmp_path / name, providers=["CPUExecutionProvider"]).run(None, {"input:0": pixels})
        for name in ("old.onnx", "new.onnx")
    )
    assert 13 == made.graph.opset_imports[""]
    assert np.allclose(old[0], new[0], atol=1e-6)


def test_what_no_converter_brings_up_is_named(tmp_path):
    """Opsets before 7, and operators that the converter does not know, are refused with its reason."""
    onnx.save(viewer(6), tmp_path / "old.onnx")
    with pytest.raises(CheckpointError, match="has opset 6; 7 or newer is needed"):
        read_onnx(tmp_path / "old.onnx")


def described_as(task, pooling="POOLING_MEAN", *, normalized=True):
    """What would be said of an encoder."""
    embedding = bundle_pb2.EmbeddingSpec(pooling=pooling, normalized=normalized)
    return OnnxModel(common_pb2.Task.Value(task), "", (), bundle_pb2.Golden(text="a"), embedding=embedding)


def adapted(model, described, path):
    """A session over a graph with our ports."""
    onnx.save(model, path)
    read = read_onnx(path)
    naming.rename(read, naming.complete(read, described, {}))
    adapting.adapt(read, described)
    onnx_ir.save(read, path)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("opset", [17, 20])
def test_places_are_pooled_over_real_tokens(pooling, normalized, opset, tmp_path):
    """First, mean, last and largest of the real tokens, of the length 1 unless that is not wanted.."""
    described = described_as("TASK_EMBED_TEXT", pooling, normalized=normalized)
    model = reader("token_embeddings")
    model.opset_import[0].version = opset
    session = adapted(model, described, tmp_path / "a.onnx")
    ids = np.random.default_rng(2).integers(0, 300, (3, 8))
    lengths = np.array([5, 8, 1], np.int32)
    (vectors,) = session.run(None, {"input_ids": ids, "lengths": lengths})
    table = numpy_helper.to_array(reader().graph.initializer[0])

    assert WIDTH == described.embedding.dimensions
    for row, (vector, length) in enumerate(zip(vectors, lengths, strict=True)):
        assert np.allclose(vector_of(table[ids[row, :length]], described), vector, atol=1e-6)
        assert not normalized or np.isclose(1, np.linalg.norm(vector))


def test_a_vector_of_zeros_has_no_length_and_stays(tmp_path):
    """Nothing is divided by a length of zero: an answer of NaN would be no vector."""
    model = reader()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((300, WIDTH), np.float32), "table"))
    session = adapted(model, described_as("TASK_EMBED_TEXT"), tmp_path / "a.onnx")
    (vectors,) = session.run(None, {"input_ids": np.array([[7, 9]]), "lengths": np.array([2], np.int32)})

    assert np.array_equal(np.zeros((1, WIDTH), np.float32), vectors)


def test_positions_are_counted_from_the_beginning_of_each_text(tmp_path):
    """A graph that takes position_ids gets 0, 1, 2 ... in each row."""
    model = reader(inputs=("position_ids", "input_ids", "attention_mask"))
    session = adapted(model, described_as("TASK_EMBED_TEXT", "POOLING_LAST", normalized=False), tmp_path / "a.onnx")
    given = {"input_ids": np.full((2, 3), 7), "lengths": np.array([2, 3], np.int32)}
    (vectors,) = session.run(None, given)

    assert np.array_equal(numpy_helper.to_array(reader().graph.initializer[0])[[1, 2]], vectors)


def test_a_vector_of_the_graph_s_own_is_taken_before_places(tmp_path):
    """Of an encoder that gives both, the vector is what sentence-transformers' pooling made."""
    model = reader("token_embeddings")
    model.graph.node.append(helper.make_node("Gather", ["token_embeddings", "second"], ["sentence_embedding"], axis=1))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "second"))
    model.graph.output.append(helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", WIDTH]))
    session = adapted(model, described_as("TASK_EMBED_TEXT", normalized=False), tmp_path / "a.onnx")
    (vector,) = session.run(None, {"input_ids": np.array([[7, 9]]), "lengths": np.array([2], np.int32)})

    assert np.allclose(numpy_helper.to_array(model.graph.initializer[0])[9], vector[0])


def pictured(height, width, sizes=None):
    """An encoder whose places are the pixels of such a picture, and what is said of it; of other sizes if told."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["y", "s"], ["z"]),
    ]
    places = height * width
    ports = ("x", TensorProto.FLOAT, ["batch", 3, height, width]), ("z", TensorProto.FLOAT, ["batch", places, 3])
    model = model_of(nodes, [ports[0]], [ports[1]], [("s", np.array([-1, places, 3], np.int64))])
    image = bundle_pb2.ImageSpec(**{"channels": 3, "height": height, "width": width} | (sizes or {}))
    embedding = bundle_pb2.EmbeddingSpec(pooling="POOLING_MEAN")
    golden = bundle_pb2.Golden(image_path="a.png")
    return model, OnnxModel(common_pb2.TASK_EMBED_IMAGE, "", (), golden, image=image, embedding=embedding)


@pytest.mark.parametrize("width", [4, 3])
def test_an_encoder_of_pictures_is_pooled_over_all_places(width, tmp_path):
    """A picture has no padding: all its places count. One as wide as it has channels still has its channels first."""
    model, described = pictured(4, width)
    pixels = np.random.default_rng(3).standard_normal((2, 3, 4, width)).astype(np.float32)
    (vectors,) = adapted(model, described, tmp_path / "a.onnx").run(None, {"pixel_values": pixels})

    assert np.allclose(pixels.mean(axis=(2, 3)), vectors, atol=1e-6)


@pytest.mark.parametrize("sizes", [{"height": 5}, {"width": 5}, {"channels": 1}])
def test_pictures_of_another_size_than_the_input_s_are_refused(sizes, tmp_path):
    """The axes of the input say how large its pictures are."""
    model, described = pictured(4, 4, sizes)
    wanted = "{channels} channels of {height} x {width} pixels".format(
        **{"channels": 3, "height": 4, "width": 4} | sizes
    )
    with pytest.raises(CheckpointError, match=rf"the input 'pixel_values' is \[batch, 3, 4, 4\], and .* {wanted}"):
        adapted(model, described, tmp_path / "a.onnx")


@pytest.mark.parametrize("longest", ["model_max_length", "max_len"])
def test_optimum_s_directory_says_what_a_wrap_needs(longest, tmp_path):
    """config.json, the tokenizer and 1_Pooling are read: the command line has the directory and the bundle alone."""
    (tmp_path / "onnx").mkdir()
    (tmp_path / "1_Pooling").mkdir()
    onnx.save(reader(), tmp_path / "onnx" / "model.onnx")
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    folders = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    kinds = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in folders.items()]
    (tmp_path / "modules.json").write_text(json.dumps(kinds))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({longest: 40}))
    (tmp_path / "tokenizer.json").write_bytes(byte_tokenizer())
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    code, said = wrap_alone(tmp_path, tmp_path / "wrapped" / "1", "--quiet")

    assert (0, "") == (code, said)
    manifest, session = opened(tmp_path, "embedder.onnx")
    assert (40, WIDTH, bundle_pb2.POOLING_MEAN, True) == (
        manifest.text.max_source_tokens,
        manifest.embedding.dimensions,
        manifest.embedding.pooling,
        manifest.embedding.normalized,
    )
    assert WIDTH == len(manifest.golden.embedding)
    assert ["input_ids", "lengths"] == sorted(port.name for port in session.get_inputs())


def wrap_alone(*arguments):
    """Run `weft wrap` with these arguments and no others; (exit code, stderr)."""
    done = CliRunner().invoke(wrap_app, list(map(str, arguments)))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stderr


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("ViTForImageClassification", "classify-image"),
        ("BertForSequenceClassification", "classify-text"),
        ("BertForTokenClassification", "tag"),
        ("BertForMaskedLM", None),
    ],
)
def test_a_class_of_transformers_says_the_task(architecture, task, tmp_path):
    """Its labels are those of id2label. What no task is for is left to --task."""
    config = {"architectures": [architecture], "id2label": {"0": "a"}, "max_position_embeddings": 512}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "preprocessor_config.json").write_text("{}")
    beside = read_beside(tmp_path)

    assert (task, task is not None, 512) == (beside.task, beside.labels is not None, beside.max_tokens)
    assert tmp_path / "preprocessor_config.json" == beside.processor


def test_what_no_graph_has_is_not_left_out(tmp_path):
    """Modules behind the pooling, and probabilities of each label alone, are refused. Normalize is followed."""
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')
    for kinds, normalized in ((["Transformer", "Pooling"], False), (["Transformer", "Pooling", "Normalize"], True)):
        modules = [{"type": f"sentence_transformers.models.{kind}"} for kind in kinds]
        (tmp_path / "modules.json").write_text(json.dumps(modules))
        assert ("embed-text", normalized) == (read_beside(tmp_path).task, read_beside(tmp_path).normalized)
    (tmp_path / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')
    with pytest.raises(CheckpointError, match="a module of the kind 'Dense'; only Transformer, Pooling, Normalize"):
        read_beside(tmp_path)
    for value in ("multi_label_classification", ["odd"]):
        (tmp_path / "config.json").write_text(json.dumps({"problem_type": value}))
        with pytest.raises(CheckpointError, match=re.escape(f"problem_type {value!r} cannot be wrapped")):
            read_beside(tmp_path)


def test_a_directory_without_one_clear_file_is_refused(tmp_path):
    """model.onnx is meant, or the only one."""
    with pytest.raises(CheckpointError, match=r"other \.onnx files: none"):
        find_model(tmp_path)
    (tmp_path / "model_quantized.onnx").write_bytes(b"")
    assert tmp_path / "model_quantized.onnx" == find_model(tmp_path)
    (tmp_path / "model_O2.onnx").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"model_O2\.onnx, model_quantized\.onnx\. Give the path"):
        find_model(tmp_path)


@pytest.mark.parametrize("size", [(20, 12), (12, 20), (7, 7), (1, 2000), (2000, 1), (33, 16)])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_padded_picture_keeps_its_aspect(size, mode):
    """Server and exporter make the same pixels: the picture in the middle, as large as fits, and the colour around."""
    colour = [200, 30, 9] if mode == "RGB" else [77]
    shape = size[::-1] if mode == "L" else (*size[::-1], 3)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, np.uint8))
    channels = len(colour)
    spec = bundle_pb2.ImageSpec(channels=channels, height=16, width=16, resample="RESAMPLE_BILINEAR", padding=colour)
    spec.mean.extend([0.0] * channels)
    spec.std.extend([1 / 255] * channels)
    out = io.BytesIO()
    picture.save(out, "PNG")
    pixels = load_picture(out.getvalue(), spec, 10**6, 10**6).pixels

    assert np.array_equal(pixels, to_pixel_values(picture, spec))
    width, height = resized_size(spec, *size)
    assert 16 == max(width, height)
    left, top = (16 - width) // 2, (16 - height) // 2
    inner = picture.resize((width, height), Image.Resampling.BILINEAR)
    shown = pixels.transpose(1, 2, 0).round().astype(np.uint8)
    assert np.array_equal(
        np.asarray(inner).reshape(height, width, channels), shown[top : top + height, left : left + width]
    )
    shown[top : top + height, left : left + width] = colour
    assert (shown == colour).all()


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"padding": [1]}, "image.padding has 1 values for 3 channels"),
        ({"padding": [1, 2, 3], "shortest_edge": 9}, "image.shortest_edge (9) is more than height or width"),
        ({"padding": [1, 2, 3], "resize_width": 16}, "image.padding is set, and so is resize_height"),
        ({"padding": [1, 2, 3], "grid_rows": 2}, "image.padding is for pictures that are not explained"),
        ({"padding": [1, 2, 3], "grid_rows": 1}, None),
        ({"padding": [1, 2, 3], "shortest_edge": 8, "grid_rows": 2}, None),
    ],
)
def test_what_does_not_go_with_padding_is_a_fault(more, fault):
    """A colour for each channel, no other way of resizing, and no grid that attention is shown on."""
    found = resizing_fault(bundle_pb2.ImageSpec(channels=3, height=8, width=8, **more))

    assert fault == found or str(found).startswith(str(fault))
