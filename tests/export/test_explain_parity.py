"""Parity of EXPLAIN graphs: a wrong layer or head is found, in as many passes as there are requests."""

import shutil

import pytest
import torch
from tiny import CHECKPOINTS

from weft_export.checkpoints.random_requests import RandomRequest, random_requests
from weft_export.errors import ParityError
from weft_export.families import causal, sequence_to_sequence
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.layers import explaining
from weft_export.verification import explain_parity
from weft_export.verification.explain_parity import ExplainParity
from weft_export.verification.tolerance import Tolerance
from weft_export.verification.tolerances import attention_tolerance_of
from weft_proto.v1 import bundle_pb2

FP32 = bundle_pb2.PRECISION_FP32
PICK_HEAD, PICK_LAYER = explaining.pick_head, explaining.pick_layer


def other_layer(layers, layer, summary=None):
    """Layer 0 where the last one was asked for."""
    return PICK_LAYER([*layers[:-1], layers[0]], layer, summary)


def no_summary(layers, layer, summary=None):
    """Layer 0 where a summary was asked for."""
    return PICK_LAYER(layers, layer, layers[0] if summary is not None else None)


def other_head(weights, head):
    """The next head where one was asked for; the average is right."""
    return PICK_HEAD(weights.roll(1, 0), head)


def first_heads(weights, head):
    """The first head in the place of the average."""
    return PICK_HEAD(weights, head.clamp(min=0))


@pytest.mark.parametrize(
    ("name", "place", "function", "wrong"),
    [
        ("tiny-generate", causal, "pick_layer", other_layer),
        ("tiny-generate", causal, "pick_head", other_head),
        ("tiny-generate", causal, "pick_head", first_heads),
        ("tiny-tags", explaining, "pick_layer", no_summary),
    ],
)
def test_a_wrong_pick_is_found(name, place, function, wrong, tmp_path, monkeypatch):
    """A graph that shows another layer, head or summary than it was asked for fails; its attentions are right."""
    checkpoint = CHECKPOINTS[name]()
    graph = graphs_of(checkpoint, FP32)[-1]
    with monkeypatch.context() as patched:
        patched.setattr(place, function, wrong)
        write_graph(graph, tmp_path)

    with pytest.raises(ParityError, match=r"explain\.onnx output weights"):
        check(checkpoint, graph, tmp_path, answered(checkpoint))


def other_of_words(attentions, layer, head):
    """Another layer of what words attend to among themselves, and the right one of a picture."""
    of_words = attentions[0].shape[2] == attentions[0].shape[3]
    return explaining.pick(attentions[::-1] if of_words else attentions, layer, head)


def test_a_wrong_pick_of_a_question_is_found(tmp_path, monkeypatch):
    """A graph that shows another layer of the question than of the picture fails."""
    checkpoint = CHECKPOINTS["tiny-answer"]()
    graph = graphs_of(checkpoint, FP32)[-1]
    with monkeypatch.context() as patched:
        patched.setattr(sequence_to_sequence, "pick", other_of_words)
        write_graph(graph, tmp_path)

    with pytest.raises(ParityError, match=r"explain\.onnx output target_weights"):
        check(checkpoint, graph, tmp_path, answered(checkpoint))


@pytest.mark.parametrize("spoil", [lambda rows: rows.roll(1, 1), torch.zeros_like], ids=["shifted", "zero"])
def test_rows_of_a_question_that_look_elsewhere_are_found(spoil, tmp_path, monkeypatch):
    """Where single weights may differ by much, as at int8, rows still may not."""
    checkpoint = CHECKPOINTS["tiny-git"]()
    graph = graphs_of(checkpoint, FP32)[-1]
    explain = type(checkpoint.model).explain
    with monkeypatch.context() as patched:
        spoiled = lambda *given: (*(made := explain(*given))[:2], spoil(made[2]))  # noqa: E731 - read once
        patched.setattr(type(checkpoint.model), "explain", spoiled)
        write_graph(graph, tmp_path)

    with pytest.raises(ParityError, match=r"output target_weights of layer 1 differs by .* of what uniform rows would"):
        check(checkpoint, graph, tmp_path, answered(checkpoint), Tolerance(1.0))


def test_one_head_of_one_layer_is_found(tmp_path):
    """A graph of which one head's scale is 1 % off fails, and says in which layer."""
    checkpoint, stranger = CHECKPOINTS["tiny-generate"](), CHECKPOINTS["tiny-generate"]()
    qkv = stranger.model.layers[1].attention.qkv.weight
    with torch.no_grad():
        qkv[3 * 16 : 4 * 16] *= 1.01
    write_graph(graphs_of(stranger, FP32)[-1], tmp_path)

    with pytest.raises(ParityError, match=r"explain\.onnx output attention\.1 differs"):
        check(checkpoint, graphs_of(checkpoint, FP32)[-1], tmp_path, answered(checkpoint))


@pytest.mark.parametrize(
    "name", ["tiny-generate", "tiny-translate", "tiny-git", "tiny-tags", "tiny-swin", "tiny-resnet"]
)
def test_passes_are_counted_by_requests(name, tiny_repository, tmp_path, monkeypatch):
    """The whole graph runs once for each request; the rest runs without the model. Nothing is left behind."""
    checkpoint = CHECKPOINTS[name]()
    bundle = shutil.copytree(tiny_repository / name / "1", tmp_path / "1")
    before = sorted(bundle.iterdir())
    runs = {}

    class Counting:
        def __init__(self, path, **given):
            self.session, self.path = REAL(path, **given), path
            self.get_inputs = self.session.get_inputs

        def run(self, names, feeds):
            runs[self.path.name] = runs.get(self.path.name, 0) + 1
            return self.session.run(names, feeds)

    monkeypatch.setattr(explain_parity, "open_session", Counting)
    requests = answered(checkpoint)
    check(checkpoint, graphs_of(checkpoint, FP32)[-1], bundle, requests)

    num_layers = len(checkpoint.explained_heads)
    assert {"explain.whole.onnx": 4, "explain.picking.onnx": 4 * (2 * num_layers + 1)} == runs
    assert before == sorted(bundle.iterdir())


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("tiny-generate", (), {True: ([[5, 6]], [2], [[]]), False: ([[5, 6]], [2], [[7]])}),
        ("tiny-translate", ([[9, 3]],), {True: ([[9, 3]], [[5, 6]]), False: ([[9, 3]], [[5, 6, 7]])}),
    ],
)
def test_an_answer_is_explained_at_its_shortest_and_whole(name, source, expected):
    """What was given stands before, as a prompt or in the answer. The last token attends to nothing."""
    request = RandomRequest(tuple(map(torch.tensor, source)), [5, 6])
    request.tokens += [7, 8]
    for shortest, inputs in expected.items():
        made = explain_parity._inputs(CHECKPOINTS[name](), request, shortest=shortest)
        assert inputs == tuple(each.tolist() for each in made)
        assert torch.int64 is made[-1].dtype


REAL = explain_parity.open_session


def answered(checkpoint):
    """Random requests, each with an answer of some tokens."""
    requests = random_requests(checkpoint)
    for request in requests:
        if checkpoint.text is not None and checkpoint.text.target_vocab_size:
            request.tokens += torch.randint(checkpoint.text.target_vocab_size, (5,)).tolist()
    return requests


def check(checkpoint, graph, directory, requests, tolerance=None):
    """Compare the EXPLAIN graph in a directory with a checkpoint's, by default at the tolerance of fp32."""
    with torch.inference_mode():
        tolerance = tolerance or attention_tolerance_of(FP32, checkpoint.model)
        ExplainParity(tolerance, graph, checkpoint, requests).check(directory / "explain.onnx")
