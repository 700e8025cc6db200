"""Caches in blocks: a paged graph, as a CPU runs it, answers as torch does, which keeps each sequence apart."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from samples import sample
from test_device_inputs import on_host
from tiny import CHECKPOINTS, save_tiny
from tiny_decoder import tiny_decoder

from weft_export.checkpoints.random_requests import random_requests
from weft_export.errors import ExportError, ParityError
from weft_export.export import as_asked, export_checkpoint, with_rounded_caches
from weft_export.families.decoder_only import DecoderOnly
from weft_export.families.writer import Writer
from weft_export.graphs.graphs import graphs_of, states_of, zeros_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.layers.paged_attention import block_tokens
from weft_export.options import ExportOptions
from weft_export.verification.decode_parity import DecodeParity
from weft_export.verification.packed_parity import check_packs
from weft_export.verification.parity import check_parity
from weft_export.verification.runtime import run_in_place
from weft_export.verification.session import open_session
from weft_export.verification.tolerances import tolerance_of
from weft_export.verification.widening import on_cpu
from weft_proto.paging import PAGED_PORTS, paging_fault
from weft_proto.v1 import bundle_pb2

FP32, FP16 = bundle_pb2.PRECISION_FP32, bundle_pb2.PRECISION_FP16
PAGED = [name for name in CHECKPOINTS if getattr(sample(name).model, "unpaged", "") is None]
# One with all that a decoder may have, and one of another family.
DAILY, NIGHTLY = {"tiny-decoder", "tiny-generate"}, [pytest.mark.whole]
# Of a pack: rows that decode, and pieces of prompts, first and later ones.
PAST, NEW = (0, 17, 3, 40, 0), (9, 1, 5, 1, 1)


class Paged:
    """A tiny generator's paged graph at fp32, over slots that hold what random tokens left."""

    def __init__(self, name, folder):
        self.checkpoint = CHECKPOINTS[name]()
        self.model, self.capacity = self.checkpoint.model, self.checkpoint.text.max_total_tokens
        (graph,) = (
            graph
            for graph in graphs_of(replace(self.checkpoint, paged=True), FP32)
            if graph.role == bundle_pb2.GRAPH_ROLE_DECODER
        )
        write_graph(graph, folder)
        self.path = folder / graph.file_name
        self.session = open_session(self.path)
        self.states = states_of(self.model, FP32)

    def slots(self, number):
        """Empty caches of so many rows."""
        return {state.past: zeros_of(state, number).numpy() for state in self.states}

    def run(self, caches, rows):
        """Run rows of (past, ids) over caches, in place; returns the outputs by name."""
        seq = max(len(ids) for _, ids in rows)
        feeds = {
            "input_ids": np.array([[*ids, *[0] * (seq - len(ids))] for _, ids in rows]),
            "past_lengths": np.array([past for past, _ in rows], np.int32),
            "lengths": np.array([len(ids) for _, ids in rows], np.int32),
        }
        return run_in_place(self.session, {**feeds, **caches}, self.states)

    def pack(self):
        """Caches that hold PAST tokens of each row, and rows of NEW more."""
        ids = [
            torch.randint(self.checkpoint.text.target_vocab_size, (count,)).tolist()
            for count in map(sum, zip(PAST, NEW, strict=True))
        ]
        caches = self.slots(len(ids))
        rows = [(row, past) for row, past in enumerate(PAST) if past]
        known = {name: array[[row for row, _ in rows]] for name, array in caches.items()}
        self.run(known, [(0, ids[row][:past]) for row, past in rows])
        for name, array in known.items():
            caches[name][[row for row, _ in rows]] = array
        return ids, caches, [(past, own[past:]) for past, own in zip(PAST, ids, strict=True)]


# Making one takes seconds, so each test of one is slow, and `make test` has two.
@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow, *NIGHTLY * (name not in DAILY)]) for name in PAGED],
)
def paged(request, tmp_path_factory):
    """A paged graph of each family that can be."""
    return Paged(request.param, tmp_path_factory.mktemp(request.param))


@torch.inference_mode()
def test_rows_of_any_kind_in_one_run_are_answered_as_by_torch(paged):
    """Decoding rows and pieces of prompts that share a run each get the logits of a full recomputation."""
    ids, caches, rows = paged.pack()

    logits = paged.run(caches, rows)["logits"]
    for row, own in enumerate(ids):
        expected = paged.model.decode(torch.tensor([own]))[0, -1]
        np.testing.assert_allclose(logits[row], expected.numpy(), atol=2e-4, rtol=1e-4)
        assert int(expected.argmax()) == int(logits[row].argmax())


def test_a_row_alone_gets_what_it_gets_in_a_pack(paged):
    """What else is in a run changes neither a row's logits nor what it writes, up to the order of sums."""
    _, caches, rows = paged.pack()
    before = {name: array.copy() for name, array in caches.items()}

    together = paged.run(caches, rows)
    for row, each in enumerate(rows):
        own = {name: array[row : row + 1].copy() for name, array in before.items()}
        alone = paged.run(own, [each])
        np.testing.assert_allclose(together["logits"][row], alone["logits"][0], atol=1e-4, rtol=1e-4)
        for name, array in own.items():
            np.testing.assert_allclose(caches[name][row], array[0], atol=1e-4, rtol=1e-4)


def test_a_prompt_in_pieces_leaves_what_it_leaves_at_once(paged):
    """Pieces of a prompt that are read in several runs leave the logits and the cache of one run."""
    ids = torch.randint(paged.checkpoint.text.target_vocab_size, (40,)).tolist()
    whole, pieces = paged.slots(1), paged.slots(1)

    expected = paged.run(whole, [(0, ids)])["logits"]
    for start, stop in ((0, 1), (1, 17), (17, 33), (33, 40)):
        actual = paged.run(pieces, [(start, ids[start:stop])])["logits"]
    np.testing.assert_allclose(actual, expected, atol=1e-4, rtol=1e-4)
    for name, array in whole.items():
        np.testing.assert_allclose(pieces[name], array, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_a_proof_of_packs_finds_another_cache(paged):
    """Two packs of all requests agree with torch over the same caches, and not over others."""
    requests = random_requests(paged.checkpoint)
    for request in requests:
        request.past = 8
    (graph,) = (each for each in graphs_of(paged.checkpoint, FP32) if each.role == bundle_pb2.GRAPH_ROLE_DECODER)
    run = DecodeParity(tolerance_of(FP32, paged.model), graph, paged.session, paged.states, requests)
    check_packs(run, paged.checkpoint.text.target_vocab_size)
    run.arrays[0][:, :, 1] += 1
    with pytest.raises(ParityError, match="logits"):
        check_packs(run, paged.checkpoint.text.target_vocab_size)


def fed_for(paged):
    """What the graph itself is fed for a pack: blocks in a random order, and NaN wherever no token is."""
    _, caches, rows = paged.pack()
    seq = max(len(ids) for _, ids in rows)
    feeds = {
        "input_ids": np.array([[*ids, *[0] * (seq - len(ids))] for _, ids in rows]),
        "past_lengths": np.array(PAST, np.int32),
        "lengths": np.array(NEW, np.int32),
    }
    return paged.session.packed({**feeds, **caches}, paged.states), paged.session.packed(
        {**feeds, **caches}, paged.states
    )


def test_the_order_of_blocks_shows_in_no_answer(paged):
    """The same sequences in other blocks get the same bits, and what lies in blocks that nobody holds is not read."""
    one, other = fed_for(paged)
    assert one["block_table"].tolist() != other["block_table"].tolist()
    assert bool(np.isnan(one[paged.states[0].past]).any())

    inner = paged.session.session
    for first, second in zip(inner.run(None, one)[:4], inner.run(None, other)[:4], strict=True):
        assert np.array_equal(first[: len(PAST)], second[: len(PAST)])
        assert bool(np.isfinite(first[: len(PAST)]).all())


def test_a_run_writes_where_slots_say_and_nowhere_else(paged):
    """Tokens of no row write nothing; each other one writes its own place, and all other places keep their bits."""
    fed, _ = fed_for(paged)
    outputs = dict(
        zip(
            [port.name for port in paged.session.session.get_outputs()],
            paged.session.session.run(None, fed),
            strict=True,
        )
    )
    assert -1 in fed["slot_mapping"]
    for state in paged.states:
        before, after = (array.reshape(-1, *array.shape[2:]) for array in (fed[state.past], outputs[state.present]))
        written = fed["slot_mapping"][fed["slot_mapping"] >= 0]
        kept = np.setdiff1d(np.arange(len(before)), written)
        assert before[kept].tobytes() == after[kept].tobytes()
        assert bool(np.isfinite(after[written]).all())


def test_a_stand_in_has_no_node_that_a_cpu_lacks(paged):
    """A server's tests can run a paged graph on a CPU: its ports stay as they are."""
    model, given = onnx.load_from_string(on_cpu(paged.path)), onnx.load(paged.path, load_external_data=False)

    assert "PagedAttention" in {node.op_type for node in given.graph.node}
    assert {""} >= {node.domain for node in model.graph.node} - {"com.microsoft"}
    assert "PagedAttention" not in {node.op_type for node in model.graph.node}
    assert [*PAGED_PORTS] == [port.name for port in given.graph.input][: len(PAGED_PORTS)]
    for before, after in zip(
        (*given.graph.input, *given.graph.output), (*model.graph.input, *model.graph.output), strict=True
    ):
        assert (before.name, before.type) == (after.name, after.type)


@pytest.fixture(scope="module", params=[pytest.param(each, marks=pytest.mark.slow) for each in ("fp16", "bf16")])
def report(request, tmp_path_factory):
    """Export a generator with its caches in blocks: at fp16 with all that a decoder may have, at bf16 a small one."""
    name, folder = {"fp16": "tiny-decoder", "bf16": "tiny-generate"}[request.param], tmp_path_factory.mktemp("paged")
    source = save_tiny(name, folder / "checkpoint")
    return export_checkpoint(
        source, folder / name / "1", ExportOptions(precision=request.param, paged=True, no_explain=True)
    )


def rounded_generator():
    """A tiny generator whose keys and values have 8 bits, in blocks; its decoder's graph at fp16."""
    original = CHECKPOINTS["tiny-generate"]()
    checkpoint = with_rounded_caches(replace(original, paged=True, explains=False), original, ())
    return checkpoint, graphs_of(checkpoint, bundle_pb2.PRECISION_FP16)


def test_rounded_caches_are_proved_too(tmp_path):
    """The operator gets a scale for each channel of keys and of values. Logits and levels are torch's."""
    checkpoint, (graph,) = rounded_generator()
    write_graph(graph, tmp_path)
    nodes = [node for node in onnx.load(tmp_path / graph.file_name).graph.node if node.op_type == "PagedAttention"]
    attributes = [{each.name: onnx.helper.get_attribute_value(each) for each in node.attribute} for node in nodes]
    parity = check_parity(checkpoint, tmp_path, bundle_pb2.PRECISION_FP16)

    assert {(b"PER_CHANNEL", b"PER_CHANNEL")} == {(each["k_quant_type"], each["v_quant_type"]) for each in attributes}
    assert {bundle_pb2.DATA_TYPE_INT8} == {state.data_type for state in graph.states}
    # As at int8: a share of the spread.
    assert pytest.approx(tolerance_of(bundle_pb2.PRECISION_INT8, checkpoint.model).tolerance) == parity.tolerance
    assert 0 < parity.max_abs_error < parity.tolerance


@pytest.mark.parametrize("place", [14, 15], ids=["keys", "values"])
def test_a_wrong_scale_is_found(place, tmp_path):
    """Keys or values that are widened by twice their scale, or kept by half of it, are another model."""
    checkpoint, (graph,) = rounded_generator()
    write_graph(graph, tmp_path)
    path = tmp_path / graph.file_name
    model = onnx.load(path)
    for node in [node for node in model.graph.node if node.op_type == "PagedAttention"]:
        name = node.input[place]
        factor = onnx.numpy_helper.from_array(np.float32(2), f"{name}.factor")
        model.graph.initializer.append(factor)
        at = next(index for index, each in enumerate(model.graph.node) if each is node or each == node)
        model.graph.node.insert(at, onnx.helper.make_node("Mul", [name, factor.name], [f"{name}.twice"]))
        node.input[place] = f"{name}.twice"
    onnx.save(model, path)
    with pytest.raises(ParityError):
        check_parity(checkpoint, tmp_path, bundle_pb2.PRECISION_FP16)


def test_a_paged_bundle_is_proved_as_any_other(report):
    """Its states are blocks of one size, parity was measured, and it has a golden answer."""
    manifest = report.manifest
    assert paging_fault(manifest) is None
    (shape,) = {tuple(state.shape) for state in manifest.states}
    assert block_tokens(shape[-1]) == shape[0]
    assert {bundle_pb2.STATE_KIND_PAGED_CACHE} == {state.kind for state in manifest.states}
    (decoder,) = (graph for graph in manifest.graphs if graph.role == bundle_pb2.GRAPH_ROLE_DECODER)
    assert [*PAGED_PORTS, *(state.past for state in manifest.states)] == [port.name for port in decoder.inputs]
    assert 0 < manifest.parity.max_abs_error < manifest.parity.tolerance
    assert manifest.parity.num_steps > 0
    assert manifest.golden.token_ids


@pytest.mark.parametrize(
    ("name", "attribute"), [("tiny-decoder", {"local_window_size": -1}), ("tiny-decoder", {"softcap": 0.0})]
)
def test_a_wrong_attention_is_found(name, attribute, tmp_path):
    """A graph whose operator is told another window or no cap fails parity, as it does over slots."""
    checkpoint = replace(CHECKPOINTS[name](), paged=True, explains=False)
    (graph,) = graphs_of(checkpoint, FP16)
    write_graph(graph, tmp_path)
    check_parity(checkpoint, tmp_path, FP16)
    ((key, value),) = attribute.items()
    model = onnx.load(tmp_path / graph.file_name, load_external_data=False)
    node = next(each for each in model.graph.node if key in {found.name for found in each.attribute})
    node.attribute.remove(next(found for found in node.attribute if found.name == key))
    node.attribute.append(onnx.helper.make_attribute(key, value))
    onnx.save(model, tmp_path / graph.file_name)

    with pytest.raises(ParityError, match=r"decoder\.onnx"):
        check_parity(checkpoint, tmp_path, FP16)


def test_no_input_is_read_on_the_host(paged):
    """But for the bounds, a device reads in each run what it is told; else it would be copied once and never again."""
    graph = onnx.load(paged.path, load_external_data=False).graph
    nodes, _ = on_host(graph)
    read = {name for node in nodes if node.op_type not in {"Shape", "Size"} for name in node.input}
    assert read.isdisjoint(port.name for port in graph.input)


@pytest.mark.parametrize(("head_dim", "tokens"), [(16, 256), (64, 256), (80, 128), (128, 128), (192, 64), (256, 64)])
def test_a_block_holds_what_flash_attention_reads_at_once(head_dim, tokens):
    """The smallest block that the quickest kernel takes follows from the width of a head."""
    assert tokens == block_tokens(head_dim)


def with_alibi():
    """The tiny decoder with a bias instead of rotations."""
    checkpoint = tiny_decoder()
    config = replace(checkpoint.model.config, rotations=(), rotation_of=(), alibi=1.0)
    return replace(checkpoint, model=DecoderOnly(config))


@pytest.mark.parametrize("name", [name for name in CHECKPOINTS if name not in PAGED])
def test_other_families_keep_slots(name):
    """A family whose attention the operator cannot do is refused with its reason."""
    checkpoint = replace(sample(name), paged=True)
    with pytest.raises(ExportError, match="--paged is not for") as refused:
        as_asked(checkpoint, ExportOptions(paged=True))
    assert isinstance(checkpoint.model, Writer) or "it has no caches" in str(refused.value)


def test_a_bias_keeps_slots():
    """So is a model of BLOOM's kind."""
    with pytest.raises(ExportError, match="adds a bias to the scores"):
        as_asked(with_alibi(), ExportOptions(paged=True))


@pytest.mark.parametrize(
    ("precision", "more", "why"),
    [
        ("fp32", {}, "--paged is for fp16, bf16 and int4-fp16"),
        ("int8", {}, "--paged is for fp16, bf16 and int4-fp16"),
        ("fp16", {"adapters": 4, "adapted": "qkv"}, "adapters are not for fp16"),
        ("fp16", {"mixed_runs": True}, "mixed runs are not for fp16"),
    ],
)
def test_what_does_not_go_with_blocks_is_refused(precision, more, why, tmp_path):
    """A CPU's precision, adapters and mixed runs are refused before anything is made."""
    with pytest.raises(ExportError, match=why):
        export_checkpoint(
            save_tiny("tiny-generate", tmp_path / "checkpoint"),
            tmp_path / "models" / "m" / "1",
            ExportOptions(precision=precision, paged=True, **more),
        )
