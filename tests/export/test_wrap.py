"""`weft wrap`: ONNX files that others made, here of plain modules of torch."""

import json
import warnings
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from google.protobuf import json_format
from onnx import TensorProto, helper, numpy_helper
from tiny_parts import byte_tokenizer, picture
from torch import nn
from typer.testing import CliRunner

from weft_export.wrapping import trial
from weft_export.wrapping.command import wrap_app
from weft_export.wrapping.requests import batches_of
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle

VOCAB, LONGEST, WIDTH = 300, 64, 32
TEXT = ("--task", "classify-text", "--golden", "the cat in the house", "--tokenizer", "tokenizer.json")
PICTURE = ("--task", "classify-image", "--golden", "golden.png", "--image-size", "16")
PICTURE += ("--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5", "--resample", "bilinear")


class Reader(nn.Module):
    """An encoder as others write it: a mask, token types, and a head over the first token, the mean, or each token."""

    def __init__(self, pooling):
        super().__init__()
        self.pooling = pooling
        self.tokens, self.types = nn.Embedding(VOCAB, WIDTH), nn.Embedding(2, WIDTH)
        self.positions = nn.Embedding(LONGEST, WIDTH)
        self.qkv, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, input_ids, attention_mask, token_type_ids):
        """Return logits [batch, 3], or [batch, seq, 3]."""
        x = self.tokens(input_ids) + self.types(token_type_ids) + self.positions(torch.arange(input_ids.shape[1]))
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        bias = torch.where(attention_mask[:, None] > 0, 0.0, -torch.inf)
        if self.pooling == "leaky":
            bias = 0
        x = x + (q @ k.transpose(1, 2) / WIDTH**0.5 + bias).softmax(dim=-1) @ v
        if self.pooling == "mean":
            return self.head((x * attention_mask[..., None]).mean(dim=1))
        return self.head(x if self.pooling == "each" else x[:, 0])


class Viewer(nn.Module):
    """A convolution, a pool, and a head."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(128, 3)
        )

    def forward(self, x):
        """Return probabilities [batch, 3]."""
        return self.layers(x).softmax(dim=-1)


def draw(module):
    """A module with weights large enough that its answers differ."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2)
    return module.eval()


def export_reader(directory, pooling, **kept):
    """Write model.onnx as somebody would by torch.onnx.export, and return the module."""
    module = draw(Reader(pooling))
    ids = torch.ones(2, 5, dtype=torch.int64)
    axes = ({0: "batch", 1: "seq"},) * 3
    names = {"input_names": ["input_ids", "attention_mask", "token_type_ids"], "output_names": ["logits"]}
    write(module, (ids, ids + 0, ids - 1), directory, **{"dynamic_shapes": axes} | names | kept)
    return module


def write(module, example, directory, **kept):
    """Write model.onnx, and what a text needs, into a directory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, example, directory / "model.onnx", dynamo=True, verbose=False, **kept)
    complete(directory)


def complete(directory):
    """Put beside a model what is said of it."""
    (directory / "tokenizer.json").write_bytes(byte_tokenizer())
    (directory / "labels.txt").write_text("bad\nfair\ngood\n")
    (directory / "golden.png").write_bytes(picture(20, 12))


def wrap(directory, *options, model="model.onnx"):
    """Run `weft wrap` in a directory; (exit code, the last line of stderr)."""
    options = [str(directory / each) if (directory / each).is_file() else each for each in options]
    command = [str(directory / model), str(directory / "wrapped" / "1"), "--labels", str(directory / "labels.txt")]
    done = CliRunner().invoke(wrap_app, [*command, *options])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, (done.stderr.splitlines() or [""])[-1]


def opened(directory, name):
    """The bundle, as a server takes it, and a session over its graph."""
    bundle = load_bundle(directory / "wrapped" / "1")
    return bundle.manifest, onnxruntime.InferenceSession(bundle.path(name), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("pooling", "task", "name"), [("first", "classify-text", "classifier"), ("each", "tag", "tagger")]
)
def test_a_mask_is_made_of_lengths(pooling, task, name, tmp_path):
    """A graph with attention_mask, token_type_ids and logits takes ids and lengths, and gives torch's probabilities."""
    module = export_reader(tmp_path, pooling)

    assert 0 == wrap(tmp_path, *TEXT, "--max-tokens", "64", "--task", task)[0]
    manifest, session = opened(tmp_path, f"{name}.onnx")
    ids = torch.randint(VOCAB, (1, 5))
    padded = {"input_ids": nn.functional.pad(ids, (0, 3)).numpy(), "lengths": np.array([5], np.int32)}
    (found,) = session.run(None, padded)
    with torch.no_grad():
        expected = module(ids, torch.ones_like(ids), torch.zeros_like(ids)).softmax(dim=-1)
    assert np.allclose(expected, found[:, :5] if pooling == "each" else found, atol=1e-5)
    assert ("onnx", "", ["bad", "fair", "good"]) == (
        manifest.family,
        manifest.provenance.torch_version,
        list(manifest.labels),
    )
    assert manifest.parity.max_abs_error < manifest.parity.tolerance == pytest.approx(1e-4)
    assert b".py" not in (tmp_path / "wrapped" / "1" / f"{name}.onnx").read_bytes()


def test_ports_get_other_names(tmp_path):
    """The one input of pictures and what comes of a softmax are clear; --rename says others. Probabilities stay."""
    names = {"input_names": ["image"], "output_names": ["scores"], "dynamic_shapes": ({0: "rows"},)}
    module = draw(Viewer())
    write(module, (torch.zeros(2, 3, 16, 16),), tmp_path, **names)
    code, complaint = wrap(tmp_path, *TEXT, "--max-tokens", "64")

    assert (1, True) == (code, "takes 'image'; known are input_ids" in complaint)
    assert 0 == wrap(tmp_path, *PICTURE)[0]
    _, session = opened(tmp_path, "classifier.onnx")
    pixels = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert np.allclose(module(pixels), session.run(None, {"pixel_values": pixels.numpy()})[0], atol=1e-6)


def test_rows_that_are_not_alone_are_refused(tmp_path):
    """A mean over positions gives a row other bits beside others; the first such row and the operator are named."""
    export_reader(tmp_path, "mean")
    code, complaint = wrap(tmp_path, *TEXT, "--max-tokens", "64")

    assert 1 == code
    assert "rows of the graph are not alone: row 0 (8 tokens, padded to 8) gets another answer alone" in complaint
    assert "It has ReduceMean, which over positions, sums one row in another order than several" in complaint
    assert not (tmp_path / "wrapped").exists()


def test_padding_that_is_read_is_refused(tmp_path):
    """A graph that forgets its mask answers by what stands behind a text's end."""
    export_reader(tmp_path, "leaky")
    code, complaint = wrap(tmp_path, *TEXT, "--max-tokens", "64")

    assert (1, True) == (code, "padding is read: row 1 (1 tokens, padded to 8)" in complaint)


def test_a_fixed_batch_is_refused(tmp_path):
    """A graph that was exported for one size of batch cannot be batched."""
    complete(tmp_path)
    onnx.save(hand_made(batch=2), tmp_path / "model.onnx")
    code, complaint = wrap(tmp_path, *PICTURE)

    assert (1, True) == (
        code,
        "the batch of the input 'pixel_values' is fixed at 2: export the model again" in complaint,
    )


def test_texts_that_are_too_long_for_the_graph_are_named(tmp_path):
    """--max-tokens beyond the table of positions fails here, and not at a caller's request."""
    export_reader(tmp_path, "first")
    code, complaint = wrap(tmp_path, *TEXT, "--max-tokens", "80")

    assert (1, True) == (code, "the graph fails on input_ids [3, 80]" in complaint)


def hand_made(node=None, opset=20, tensor=None, name="logits", batch="batch"):
    """A graph of one product over pixels [batch, 3, 16, 16], of which a part may be otherwise."""
    weights = tensor or helper.make_tensor(
        "w", TensorProto.FLOAT, [768, 3], np.ones((768, 3), np.float32).tobytes(), raw=True
    )
    nodes = [node or helper.make_node("Flatten", ["pixel_values"], ["x"], axis=1)]
    nodes += [helper.make_node("MatMul", ["x", "w"], [name])]
    pixels = helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, [batch, 3, 16, 16])
    out = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3])
    graph = helper.make_graph(nodes, "hand-made", [pixels], [out], [weights])
    domains = (
        [helper.make_opsetid("", opset), helper.make_opsetid("custom", 1)] if node else [helper.make_opsetid("", opset)]
    )
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def before(*nodes):
    """That graph, with nodes before its own that make the number `extra`, which is added to its answer."""
    model = hand_made()
    flatten, product = model.graph.node
    product.input[0] = "y"
    add = helper.make_node("Add", ["x", "extra"], ["y"])
    own = [helper.make_node(each.op_type, each.input, each.output) for each in (flatten, add, product)]
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *own])
    return model


def number(name, value, dtype=np.int64):
    """A node that gives a constant."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, dtype)))


def table(size):
    """Nodes that make a table of so many numbers, which no one sees before they run, and its largest one."""
    sizes = [helper.make_node("Shape", ["pixel_values"], ["channels"], start=1, end=2), number("each", [size // 3])]
    sizes.append(helper.make_node("Mul", ["channels", "each"], ["size"]))
    return [
        *sizes,
        helper.make_node("ConstantOfShape", ["size"], ["table"]),
        helper.make_node("ReduceMax", ["table"], ["extra"], keepdims=0),
    ]


def looping():
    """A loop in a branch, which nobody might take."""
    ports = [("i", TensorProto.INT64), ("go", TensorProto.BOOL), ("on", TensorProto.BOOL), ("extra", TensorProto.FLOAT)]
    turn, go, on, extra = (helper.make_tensor_value_info(name, dtype, []) for name, dtype in ports)
    body = helper.make_graph([helper.make_node("Identity", ["go"], ["on"])], "body", [turn, go], [on])
    loop = [number("n", 10**18), helper.make_node("Loop", ["n", "yes"], [], body=body), number("extra", 0, np.float32)]
    branches = {"then_branch": helper.make_graph(loop, "then", [], [extra])}
    branches["else_branch"] = helper.make_graph([number("extra", 0, np.float32)], "else", [], [extra])
    return before(number("yes", True, np.bool_), helper.make_node("If", ["yes"], ["extra"], **branches))


def functions():
    """Forty functions, each of which calls the next one twice."""
    model, opsets = before(helper.make_node("F0", ["zero"], ["extra"], domain="com.microsoft")), []
    model.graph.node.insert(0, number("zero", 0, np.float32))
    for domain, version in (("", 20), ("com.microsoft", 1)):
        opsets.append(helper.make_opsetid(domain, version))
    for each in range(40):
        calls = [helper.make_node(f"F{each + 1}", [a], [b], domain="com.microsoft") for a, b in ("ab", "bc")]
        model.functions.append(helper.make_function("com.microsoft", f"F{each}", ["a"], ["c"], calls, opsets))
    return model


def empty():
    """A graph without nodes."""
    model = hand_made()
    del model.graph.node[:]
    return model


def outside(location, length="9216", offset="0"):
    """The weights, said to lie in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[768, 3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (hand_made(helper.make_node("Evil", ["pixel_values"], ["x"], domain="custom")), "of the domain 'custom'"),
        (hand_made(opset=6), "has opset 6; 7 or newer is needed"),
        (looping(), "has the operator Loop, which is not served: nobody can tell how long a loop takes"),
        (functions(), "has functions of its own: put them in their places"),
        (empty(), "has no nodes"),
        (hand_made(tensor=TensorProto(name="w", data_type=1, dims=[-1, 3])), "'w' has the sizes [-1, 3]"),
        (hand_made(tensor=TensorProto(name="w", data_type=1, dims=[2**40, 3])), "'w' has the sizes [1099511627776, 3]"),
        (before(*table(3 * 10**11)), "the graph asks for more memory than its trial may take, 8."),
        (hand_made(tensor=outside("../secret")), "lies in '../secret'; weights must be in files beside"),
        (hand_made(tensor=outside("labels.txt")), "ends at byte 9216 of labels.txt, which has 14"),
        (hand_made(tensor=outside("labels.txt", "-1")), "has offset 0 and length -1; neither may be below 0"),
        (hand_made(tensor=outside("labels.txt", offset="-9216")), "has offset -9216 and length 9216; neither may be"),
        (hand_made(tensor=outside("link")), "lies in 'link', which links to a file outside the folder"),
        (
            hand_made(name="probabilities"),
            "do not sum to 1; if they are logits, say so by --rename probabilities=logits",
        ),
        (hand_made(name="scores"), "one output must be logits or probabilities, and the graph has scores"),
    ],
)
def test_what_no_server_would_take_is_refused(model, complaint, tmp_path):
    """Foreign operators, old opsets, weights elsewhere, and answers that are no distribution have a sentence each."""
    home = tmp_path / "home"
    home.mkdir()
    complete(home)
    (tmp_path / "secret").write_bytes(bytes(9216))
    (home / "link").symlink_to("../secret")
    onnx.save(model, home / "model.onnx")
    code, told = wrap(home, *PICTURE)

    assert (1, True) == (code, complaint in told), told
    assert not (home / "wrapped").exists()


@pytest.mark.parametrize(("side", "numbers"), [(16, [7, 64]), (1024, [7]), (700, [7, 11])])
def test_as_many_pictures_are_tried_as_memory_allows(side, numbers):
    """A server puts up to 64 in one batch; of large ones fewer are tried at once, and never under 7."""
    image = bundle_pb2.ImageSpec(channels=3, height=side, width=side)

    assert numbers == [len(batch.requests) for batch in batches_of(SimpleNamespace(image=image, text=None))]


@pytest.mark.parametrize(("longest", "widths"), [(64, [8, 16, 8, 32, 64]), (4096, [8, 16, 8, 256, 2048])])
def test_texts_are_tried_in_batches_as_a_server_makes_them(longest, widths):
    """A few, as many as 64, a middle width and the longest. What runs alone out of the 64 has every length."""
    text = bundle_pb2.TextSpec(source_vocab_size=300, max_source_tokens=longest)
    batches = batches_of(SimpleNamespace(image=None, text_spec=text))

    assert widths == [batch.width for batch in batches]
    assert [7, 7, 64, 5, 3] == [len(batch.requests) for batch in batches]
    assert set(range(2, 9)) == {len(request) for request in batches[2].requests[::8]}


def test_a_graph_that_takes_too_long_is_refused(tmp_path, monkeypatch):
    """What runs is a process of its own: it ends with its time, whatever it is at."""
    complete(tmp_path)
    products = [helper.make_node("MatMul", [f"m{each}", "m0"], [f"m{each + 1}"]) for each in range(500)]
    sizes = [number("sizes", [-1, 1536]), helper.make_node("Reshape", ["table", "sizes"], ["m0"])]
    nodes = [*table(1536**2)[:-1], *sizes, *products]
    onnx.save(before(*nodes, helper.make_node("ReduceMax", ["m500"], ["extra"], keepdims=0)), tmp_path / "model.onnx")
    monkeypatch.setattr(trial, "MAX_SECONDS", 0.5)
    code, told = wrap(tmp_path, *PICTURE)

    assert (1, True) == (code, "the graph's trial runs take over 0.5 s together" in told), told
    assert not (tmp_path / "wrapped").exists()


def test_a_graph_that_ends_its_process_is_refused(tmp_path, monkeypatch):
    """Where ONNX Runtime itself does not outlive a graph, a sentence says so all the same."""
    complete(tmp_path)
    onnx.save(hand_made(), tmp_path / "model.onnx")
    monkeypatch.setattr(trial, "_MODULE", "this")  # it says something else, and ends
    code, told = wrap(tmp_path, *PICTURE)

    assert (1, True) == (code, "ONNX Runtime ended with exit code 0 over the graph" in told), told


def test_the_sound_graph_among_them_is_taken(tmp_path):
    """So the refusals above are for what is changed in it. Labels and pixels may be said in Hugging Face's files."""
    complete(tmp_path)
    onnx.save(hand_made(), tmp_path / "model.onnx")
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"1": "b", "0": "a", "2": "c"}}))
    processor = {"image_processor_type": "ViTImageProcessor", "size": 16, "image_mean": [0.1, 0.2, 0.3]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    options = ("--labels", "config.json", "--processor", "preprocessor_config.json")

    assert 0 == wrap(tmp_path, *PICTURE[:4], *options)[0]
    manifest, _ = opened(tmp_path, "classifier.onnx")
    image = bundle_pb2.ImageSpec(channels=3, height=16, width=16, resample="RESAMPLE_BILINEAR", std=[0.5] * 3)
    image.mean.extend([0.1, 0.2, 0.3])
    image.grid_rows = image.grid_columns = 1
    assert json_format.MessageToDict(image) == json_format.MessageToDict(manifest.image)
    assert ["a", "b", "c"] == list(manifest.labels)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (TEXT[:4], "--tokenizer is missing"),
        (PICTURE[:4], "--image-size and --mean and --std and --resample: a model of pictures needs it"),
        ((*PICTURE, "--rename", "x"), "--rename x: it must be OLD=NEW"),
        ((*PICTURE, "--rename", "x=logits"), "--rename x=logits: the graph has pixel_values, logits, and no 'x'"),
        ((*PICTURE, "--image-size", "big"), "--image-size big: it must be a number of pixels, or HEIGHTxWIDTH"),
        ((*PICTURE, "--image-size", "0"), "--image-size 0: a side must have 1 to 4096 pixels"),
        ((*TEXT, "--max-tokens", "1000000000000"), "--max-tokens': Input should be less than or equal to 131072"),
        ((*TEXT, "--golden", "\udcff"), "--golden: it is not UTF-8"),
        ((*PICTURE, "--mean", "a,b,c"), "--mean a,b,c: it must be numbers with commas between"),
        ((*PICTURE, "--labels", "golden.png"), "cannot be read as labels"),
    ],
)
def test_what_is_said_wrongly_is_one_sentence(options, complaint, tmp_path):
    """The option is named, and what it may be."""
    complete(tmp_path)
    onnx.save(hand_made(), tmp_path / "model.onnx")
    code, told = wrap(tmp_path, *options)

    assert (True, True) == (code in (1, 2), complaint in told), told
