"""What an export writes."""

import hashlib

import onnx
import pytest
from google.protobuf import json_format
from samples import WRITERS, sample
from tiny import CHECKPOINTS

from weft_export.graphs.weight_files import REPEATING
from weft_proto.tasks import TASKS
from weft_proto.token_vectors import row_width
from weft_proto.v1 import bundle_pb2, common_pb2

WITH_ENCODER = [name for name in WRITERS if sample(name).task != common_pb2.TASK_GENERATE]


def read_manifest(bundle):
    """Read a bundle's manifest."""
    return json_format.Parse((bundle / "bundle.json").read_text(), bundle_pb2.BundleManifest())


@pytest.fixture(params=CHECKPOINTS)
def bundle(request, tiny_repository):
    """Each tiny bundle in turn."""
    return tiny_repository / request.param / "1"


def test_manifest_lists_every_file_with_its_digest(bundle):
    """Every file but bundle.json is listed with its size and SHA-256, and nothing else is."""
    files = {file.path: (file.size_bytes, file.sha256) for file in read_manifest(bundle).files}

    actual = {
        path.name: (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in bundle.iterdir()
        if path.name != "bundle.json"
    }
    assert files == actual


def test_ports_are_those_of_the_graphs(bundle):
    """Each graph's ports stand in the manifest in order, with the role's names."""
    for graph in read_manifest(bundle).graphs:
        model = onnx.load(bundle / graph.path, load_external_data=False)

        assert [port.name for port in graph.inputs] == [value.name for value in model.graph.input]
        assert [port.name for port in graph.outputs] == [value.name for value in model.graph.output]


def test_weights_are_external(bundle):
    """A graph's tensors lie in <graph>.onnx.data beside it, or in that of a graph before it: the graph is small."""
    before = set()
    for graph in read_manifest(bundle).graphs:
        model = onnx.load(bundle / graph.path, load_external_data=False)
        places = {entry.value for t in model.graph.initializer for entry in t.external_data if entry.key == "location"}

        own = {f"{graph.path}.data"}
        made_of_others = graph.role in (*REPEATING, bundle_pb2.GRAPH_ROLE_SCORE)
        assert own == places or (made_of_others and places <= own | before and before & places)
        assert (bundle / graph.path).stat().st_size < 100_000
        before |= places


def test_no_weight_is_written_twice(bundle):
    """A graph that repeats a model reads its weights where they lie: of each weight there is one copy in the bundle."""
    contents, repeated = set(), []
    for graph in read_manifest(bundle).graphs:
        model = onnx.load(bundle / graph.path, load_external_data=False)
        places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in model.graph.initializer]
        own = [place for place in places if place.get("location") == f"{graph.path}.data"]
        data = (bundle / f"{graph.path}.data").read_bytes() if own else b""
        found = {data[int(place["offset"]) : int(place["offset"]) + int(place["length"])] for place in own}
        if graph.role in REPEATING:
            repeated += found & contents
        contents |= found
    assert [] == repeated


def test_graphs_carry_no_trace_of_the_machine(bundle):
    """No path of the exporting machine stands in a graph."""
    for path in bundle.glob("*.onnx"):
        assert b".py" not in path.read_bytes()


@pytest.mark.parametrize("name", WRITERS)
def test_decoder_takes_its_states_in_order(tiny_repository, name):
    """The states' past and present ports are the last inputs and outputs, in the states' order and shape."""
    manifest = read_manifest(tiny_repository / name / "1")
    decoder = next(graph for graph in manifest.graphs if graph.role == bundle_pb2.GRAPH_ROLE_DECODER)
    states = manifest.states
    presents = [state.present for state in states if state.present]

    assert [state.past for state in states] == [port.name for port in decoder.inputs][-len(states) :]
    assert presents == [port.name for port in decoder.outputs][4:]
    for port, state in zip(decoder.inputs[-len(states) :], states, strict=True):
        assert ["batch", *map(str, state.shape)] == list(port.shape)
        assert state.data_type == port.data_type


@pytest.mark.parametrize("name", WITH_ENCODER)
def test_memory_comes_from_the_encoder(tiny_repository, name):
    """Every memory state, and every recurrent one that does not start at zero, names an output of the encoder."""
    manifest = read_manifest(tiny_repository / name / "1")
    encoder = next(graph for graph in manifest.graphs if graph.role == bundle_pb2.GRAPH_ROLE_ENCODER)

    written = [state for state in manifest.states if state.encoder_output]
    assert [state.encoder_output for state in written] == [port.name for port in encoder.outputs]
    for state in manifest.states:
        assert state.encoder_output or state.kind != bundle_pb2.STATE_KIND_MEMORY
        assert state.present or state.kind == bundle_pb2.STATE_KIND_MEMORY


def test_parity_and_golden_are_recorded(bundle):
    """A bundle says how near it is to torch and which answer a server must reproduce."""
    manifest = read_manifest(bundle)

    assert 0 < manifest.parity.max_abs_error <= manifest.parity.tolerance == pytest.approx(1e-4)
    writes, task, golden = bundle.parent.name in WRITERS, TASKS[manifest.task], manifest.golden
    if task.labels_tokens:
        values = golden.scores or golden.probabilities
        assert values
        assert 0 == len(values) % len(manifest.labels)
    elif task.fills_masks:
        assert 0 == len(golden.token_ids) % 2
        assert len(golden.scores) == len(golden.token_ids)
    elif task.labels_frames:
        assert (1200 - 20) // manifest.audio.hop_size + 1 == len(golden.scores)
    else:
        # A model that matches has labels for its golden request alone.
        assert len(manifest.labels or golden.labels) == len(golden.scores or golden.probabilities)
    if manifest.task != common_pb2.TASK_MATCH:
        rows = len(golden.embedding) // max(1, row_width(manifest.embedding))
        assert row_width(manifest.embedding) * rows == len(golden.embedding)
        assert (rows > 1) is manifest.embedding.HasField("tokens")
    assert (len(golden.token_ids) > 0) is (writes or task.fills_masks)
    assert (manifest.parity.num_steps > 0) is writes
    assert manifest.provenance.num_parameters > 0


def test_attention_is_described_where_it_can_be_read(bundle):
    """A bundle with an EXPLAIN graph lists the heads of its layers; its model is asked for one of them or a summary."""
    manifest = read_manifest(bundle)
    roles = [graph.role for graph in manifest.graphs]
    checkpoint = CHECKPOINTS[bundle.parent.name]()

    assert (bundle_pb2.GRAPH_ROLE_EXPLAIN in roles) is bool(checkpoint.model.attention_heads)
    assert checkpoint.model.attention_heads == tuple(manifest.attention.heads)
    default = manifest.attention.default_layer if manifest.attention.HasField("default_layer") else None
    assert checkpoint.attention_layer == default
