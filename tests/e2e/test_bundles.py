"""A bundle that is not what it says is refused with the reason, and the models beside it serve."""

import hashlib
import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import weft
from process import ServerProcess

pytestmark = pytest.mark.e2e


def manifest_of(bundle):
    """(path, parsed JSON) of a bundle's manifest."""
    path = bundle / "bundle.json"
    return path, json.loads(path.read_text())


def lose_a_file(bundle):
    """Delete a listed file."""
    (bundle / "decoder.onnx.data").unlink()


def flip_a_byte(bundle):
    """Change a file without its digest."""
    data = bytearray((bundle / "decoder.onnx.data").read_bytes())
    data[100] ^= 1
    (bundle / "decoder.onnx.data").write_bytes(data)


def resum(bundle, file_name):
    """Make the manifest agree with a changed file."""
    manifest_path, manifest = manifest_of(bundle)
    data = (bundle / file_name).read_bytes()
    for file in manifest["files"]:
        if file["path"] == file_name:
            file["sha256"], file["sizeBytes"] = hashlib.sha256(data).hexdigest(), str(len(data))
    manifest_path.write_text(json.dumps(manifest))


def break_the_run(bundle):
    """Make a graph that loads and fails when it is run: a size that nothing can be reshaped to."""
    path = bundle / "decoder.onnx"
    model = onnx.load(path, load_external_data=False)
    (width,) = (port.type.tensor_type.shape.dim[1].dim_value for port in model.graph.output[:1])
    for name, shape in (("odd", [7, 13, -1]), ("back", [-1, width])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(shape), name))
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        if "topk_logits" in node.output:
            node.output[:] = ["inner" if name == "topk_logits" else name for name in node.output]
            nodes.append(helper.make_node("Reshape", ["inner", "odd"], ["mid"]))
            nodes.append(helper.make_node("Reshape", ["mid", "back"], ["topk_logits"]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    path.write_bytes(model.SerializeToString())
    resum(bundle, "decoder.onnx")


def run_for_ever(bundle):
    """Make a graph whose run has no end: a loop of 2^62 turns before the answer."""
    path = bundle / "classifier.onnx"
    model = onnx.load(path, load_external_data=False)
    kept = helper.make_tensor_value_info("kept", onnx.TensorProto.BOOL, [])
    sums = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, []) for name in ("sum_in", "sum_out")]
    turn = helper.make_tensor_value_info("turn", onnx.TensorProto.INT64, [])
    go = helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, [])
    steps = [
        helper.make_node("Identity", ["go"], ["kept"]),
        helper.make_node("Cos", ["sum_in"], ["sum_out"]),
    ]
    body = helper.make_graph(steps, "body", [turn, go, sums[0]], [kept, sums[1]])
    constants = {"turns": np.array(2**62), "true": np.array(True), "zero": np.array(0, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    for node in model.graph.node:
        node.output[:] = ["inner" if name == "probabilities" else name for name in node.output]
    model.graph.node.append(helper.make_node("Loop", ["turns", "true", "zero"], ["sum"], body=body))
    model.graph.node.append(helper.make_node("Mul", ["sum", "zero"], ["nothing"]))
    model.graph.node.append(helper.make_node("Add", ["inner", "nothing"], ["probabilities"]))
    path.write_bytes(model.SerializeToString())
    resum(bundle, "classifier.onnx")


def leave_the_directory(bundle):
    """Point external data out of the bundle, and make the manifest agree with the changed graph."""
    path = bundle / "decoder.onnx"
    model = onnx.load(path, load_external_data=False)
    entry = next(e for tensor in model.graph.initializer for e in tensor.external_data if e.key == "location")
    entry.value = "../../../etc/passwd"
    path.write_bytes(model.SerializeToString())
    resum(bundle, "decoder.onnx")


def change_the_golden_answer(bundle):
    """Expect another answer."""
    path, manifest = manifest_of(bundle)
    manifest["golden"]["tokenIds"][0] += 1
    path.write_text(json.dumps(manifest))


def claim(**numbers):
    """Return what claims other numbers in the manifest's text."""

    def spoil(bundle):
        path, manifest = manifest_of(bundle)
        manifest["text"] |= numbers
        path.write_text(json.dumps(manifest))

    return spoil


def claim_many_heads(bundle):
    """Claim so many heads that nobody could ever look at all of them."""
    path, manifest = manifest_of(bundle)
    manifest["attention"]["heads"][0] = 2_000_000_000
    path.write_text(json.dumps(manifest))


def claim_many_labels(bundle):
    """Claim millions of labels."""
    path, manifest = manifest_of(bundle)
    manifest["labels"] = [""] * 5_500_000
    path.write_text(json.dumps(manifest))


def add_a_file(bundle):
    """Put something in that the manifest does not list."""
    (bundle / "custom_ops.so").write_bytes(b"\x7fELF")


BREAKS = {
    "missing": (lose_a_file, "decoder.onnx.data"),
    "broken": (break_the_run, "cannot be loaded"),
    "digest": (flip_a_byte, "decoder.onnx.data"),
    "outside": (leave_the_directory, "etc/passwd"),
    "golden": (change_the_golden_answer, "golden answer differs"),
    "unlisted": (add_a_file, "custom_ops.so"),
    "a-heads": (claim_many_heads, "attention.heads[0] is 2000000000; it must be from 0 to 1,024"),
    "a-labels": (claim_many_labels, "bundle.json has"),
    "vocabulary": (claim(sourceVocabSize=4_000_000_000), "text.source_vocab_size is 4000000000; it must be"),
    "table": (claim(sourceVocabSize=301), "text.source_vocab_size is 301; decoder.onnx has a table of"),
    "prompts": (claim(maxTotalTokens=1_000_000), "text.max_total_tokens is 1000000"),
}


@pytest.fixture(scope="module")
def repository(tiny_repository, tmp_path_factory):
    """One sound model, and one for each way to break it."""
    repository = tmp_path_factory.mktemp("broken")
    shutil.copytree(tiny_repository / "tiny-text", repository / "sound")
    for name, (spoil, _) in BREAKS.items():
        shutil.copytree(tiny_repository / "tiny-generate", repository / name)
        spoil(repository / name / "1")
    return repository


@pytest.fixture(scope="module")
def server(repository):
    """A server over them; it says why it is not ready."""
    with ServerProcess(repository) as server:
        server.wait_for("not ready")
        yield server


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_bundle_is_refused_with_its_reason(server, name):
    """GetModel says FAILED and why, a request is Unavailable, its health is not serving."""
    with weft.Client(server.target, timeout=30) as client:
        model = client.get_model(name)
        assert model.state is weft.ModelState.FAILED
        assert BREAKS[name][1] in model.error
        assert client.health(f"model/{name}") is weft.Health.NOT_SERVING
        with pytest.raises(weft.Unavailable, match="refused"):
            client.generate("a", model=name)


def test_the_server_is_not_ready_but_its_sound_model_answers(server):
    """Readiness is about all models, liveness about none, and one bad bundle harms no other."""
    with weft.Client(server.target, timeout=30) as client:
        assert client.health() is weft.Health.NOT_SERVING
        assert client.health("live") is weft.Health.SERVING
        assert client.classify(text="the cat", model="sound").labels
    assert 200 == server.get("/livez")[0]
    status, why = server.get("/readyz")
    assert 503 == status
    assert "a-heads" in why
    assert len(BREAKS) == server.metric("weft_model_loads_total", result="refused")
    samples = server.metrics().items()
    ready = {dict(labels)["model"]: value for (name, labels), value in samples if name == "weft_model_ready"}
    assert dict.fromkeys(BREAKS, 0) | {"sound": 1} == ready


def test_a_bundle_that_never_ends_blocks_nobody(tiny_repository, tmp_path):
    """The models behind it get ready and answer, the server says what it waits for, and SIGTERM ends it with 0."""
    shutil.copytree(tiny_repository / "tiny-text", tmp_path / "a-endless")
    run_for_ever(tmp_path / "a-endless" / "1")
    for name in ("b", "c", "d"):
        shutil.copytree(tiny_repository / "tiny-text", tmp_path / name)
    with ServerProcess(tmp_path) as server, weft.Client(server.target) as client:
        for name in ("b", "c", "d"):
            server.wait_until(lambda name=name: client.get_model(name).state is weft.ModelState.READY)
            assert client.health(f"model/{name}") is weft.Health.SERVING
            assert client.classify(text="the cat", model=name).labels
        assert client.get_model("a-endless").state is weft.ModelState.LOADING
        assert client.health() is weft.Health.NOT_SERVING
        assert 200 == server.get("/livez")[0]
        assert (503, "model a-endless version 1: loading\n") == server.get("/readyz")
        assert 0 == server.terminate()


def test_a_bundle_without_an_end_is_refused_in_time(tiny_repository, tmp_path):
    """What it runs is ended, and all threads end with the server. Others are served meanwhile and afterwards."""
    shutil.copytree(tiny_repository / "tiny-text", tmp_path / "a-endless")
    run_for_ever(tmp_path / "a-endless" / "1")
    shutil.copytree(tiny_repository / "tiny-text", tmp_path / "b")
    with ServerProcess(tmp_path, load_timeout_s=10) as server, weft.Client(server.target) as client:
        server.wait_until(lambda: client.get_model("b").state is weft.ModelState.READY)
        refused = server.wait_for("bundle refused")
        assert ("a-endless", True) == (refused["model"], "it is not ready after 10 s" in refused["why"])
        assert client.classify(text="the cat", model="b").labels
        assert client.get_model("a-endless").state is weft.ModelState.FAILED
        assert 200 == server.get("/livez")[0]
        assert 0 == server.terminate()
