"""Parts of a proof by themselves: how often it runs a model, what it feeds, keeps, lets go and writes down."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from copied_parity import parity_of
from tiny import CHECKPOINTS, tiny_generate
from torch import nn

from weft_export.checkpoints.random_requests import random_requests
from weft_export.errors import ParityError
from weft_export.graphs.graphs import DEFERRED_PORTS, graphs_of, states_of
from weft_export.verification import mixed_parity
from weft_export.verification.decode_parity import MAX_STEPS, PREFILL_SEQ, DecodeParity
from weft_export.verification.paged_session import PagedSession
from weft_export.verification.session import AdaptedSession
from weft_export.verification.tolerance import Figures, SizeTolerance, Tolerance
from weft_export.verification.tolerances import VECTOR_FP16_TOLERANCE, num_passes, tolerance_of, vector_tolerance_of
from weft_proto.bundle_rules import ADAPTER_PORTS, CANDIDATE_PORTS
from weft_proto.v1 import bundle_pb2

FP32 = bundle_pb2.PRECISION_FP32


def test_of_what_was_compared_the_largest_error_stays(tmp_path):
    """NaN is the largest. Lines are in the order in which things were first compared."""
    figures = Figures()
    for what, error in (("logits", 0.0), ("state", 0.25), ("logits", 2e-5), ("state", 0.125), ("logits", 1e-5)):
        figures.note(what, error, "0.1")
    figures.note("weights", float("nan"), "0.2")
    figures.note("weights", 0.5, "0.2")
    figures.write(tmp_path / "figures")
    written = "state: 0.25, allowed 0.1\nlogits: 2e-05, allowed 0.1\nweights: nan, allowed 0.2\n"
    assert written == (tmp_path / "figures").read_text()


class _Graph:
    """A session of a graph that takes adapters of rank 3 at most in one layer."""

    def get_inputs(self):
        """As an InferenceSession."""
        ports = {
            "input_ids": [1],
            "adapter.q.a": ["n", 4, 3],
            "adapter.q.b": ["n", 3, 5],
            **{p: [1] for p in ADAPTER_PORTS},
        }
        return [SimpleNamespace(name=name, shape=shape) for name, shape in ports.items()]


def test_a_session_fills_in_the_adapter_of_all_its_rows():
    """One of a lower rank is filled up with zeros. Without one there is none for any row."""
    feeds = {"input_ids": np.zeros((2, 7), np.int64)}
    pair = np.full((4, 2), 7, np.float32), np.full((2, 5), 8, np.float32)
    whole = AdaptedSession(_Graph(), {"q": pair}).whole(feeds)
    assert [[7, 7, 0]] * 4 == whole["adapter.q.a"][0].tolist()
    assert [[8] * 5, [8] * 5, [0] * 5] == whole["adapter.q.b"][0].tolist()
    assert [[[0, 1]], [0, 1], [0, 1]] == [whole[name].tolist() for name in ADAPTER_PORTS]

    whole = AdaptedSession(_Graph()).whole(feeds)
    assert [(0, 4, 3), (0, 3, 5)] == [whole[f"adapter.q.{side}"].shape for side in "ab"]
    assert [(0, 2), (0,), (0,)] == [whole[name].shape for name in ADAPTER_PORTS]


def test_a_mixed_run_without_all_outputs_has_the_same_bits(monkeypatch):
    """Of candidates, and both have those of runs apart. What is not asked for may be anything."""
    together = {name: np.arange(3.0) for name in (*CANDIDATE_PORTS, *DEFERRED_PORTS)}
    rows, prompt = ({name: array[part] for name, array in together.items()} for part in (slice(2), slice(2, 3)))
    ids = np.zeros((1, 1), np.int64)
    example = mixed_parity._Example(ids, ids, {}, ids, ids, {}, ids)
    for changed, is_found in ((DEFERRED_PORTS[0], False), (CANDIDATE_PORTS[0], True)):
        less = together | {changed: np.arange(3.0) + 1}
        monkeypatch.setattr(mixed_parity, "_run", lambda *_, reads_all=1, less=less: together if reads_all else less)
        with pytest.raises(ParityError) if is_found else contextlib.nullcontext():
            mixed_parity._check(None, example, rows, prompt, [])

    monkeypatch.setattr(mixed_parity, "_run", lambda *_, reads_all=1: together)
    for name in CANDIDATE_PORTS:
        for others in ((rows | {name: rows[name] + 1}, prompt), (rows, prompt | {name: prompt[name] + 1})):
            with pytest.raises(ParityError, match=name):
                mixed_parity._check(None, example, *others, [])


@pytest.mark.parametrize(
    ("num_weights", "most", "expected"),
    [(0, 256, 256), (10**6, 256, 256), (67 * 10**6, 256, 256), (10**8, 256, 171), (2 * 10**9, 256, 16), (10**9, 8, 8)],
)
def test_a_large_model_is_run_less_often(num_weights, most, expected):
    """As often as asked, or so often that 2^34 weights are read, and 16 times at least. Buffers are weights too."""
    model = nn.Module()
    with torch.device("meta"):
        model.register_buffer("rounded", torch.empty(num_weights // 2))
        model.weight = nn.Parameter(torch.empty(num_weights - num_weights // 2))
    assert expected == num_passes(model, most)


def test_a_proof_that_is_over_holds_no_states():
    """Its arrays and tensors, which may be gigabytes, go before the next proof makes its own. So does the session."""
    checkpoint = tiny_generate()
    (graph,) = (graph for graph in graphs_of(checkpoint, FP32) if graph.role == bundle_pb2.GRAPH_ROLE_DECODER)
    session = SimpleNamespace(get_inputs=list)
    states = states_of(checkpoint.model, FP32)
    run = DecodeParity(Tolerance(1.0), graph, session, states, random_requests(checkpoint))
    assert run.arrays
    assert run.tensors
    run.close()
    assert ([], [], False) == (run.arrays, run.tensors, hasattr(run, "session"))


def test_torch_keeps_as_much_of_a_cache_as_the_requests_use():
    """Not a whole context, which may be long, and never more than one."""
    checkpoint = tiny_generate()
    (graph,) = (graph for graph in graphs_of(checkpoint, FP32) if graph.role == bundle_pb2.GRAPH_ROLE_DECODER)
    requests = random_requests(checkpoint)
    used = max(request.num_given for request in requests) + MAX_STEPS + PREFILL_SEQ
    for context in (used // 2, used, used + 1, 4 * used):
        states = states_of(checkpoint.model, FP32)
        for state in states:
            state.shape[state.length_axis] = context
        run = DecodeParity(Tolerance(1.0), graph, SimpleNamespace(get_inputs=list), states, requests)
        lengths = {tensor.shape[1 + state.length_axis] for state, tensor in zip(states, run.tensors, strict=True)}
        assert {min(context, used)} == lengths


@pytest.mark.parametrize("precision", [FP32, bundle_pb2.PRECISION_FP16, bundle_pb2.PRECISION_BF16])
def test_vectors_are_held_to_their_size(precision):
    """At fp16 as at float32: a vector of length 1 has small numbers. What is rounded more is held as logits are."""
    model = nn.Linear(2, 2)
    like = tolerance_of(precision, model)
    held = vector_tolerance_of(precision, model)
    if precision == bundle_pb2.PRECISION_FP16:
        assert (SizeTolerance, VECTOR_FP16_TOLERANCE) == (type(held), held.tolerance)
        assert SizeTolerance is not type(like)
    else:
        assert (type(like), like.tolerance) == (type(held), held.tolerance)


def test_a_paged_run_is_told_in_blocks():
    """Each row has its tokens in blocks of its own; around them stand a row and tokens that are nobody's."""
    port = SimpleNamespace(name="past", shape=["blocks", 4, 1, 2], type="tensor(float)")
    state = bundle_pb2.StateTensor(past="past", present="present")
    past, lengths = np.array([5, 0]), np.array([1, 3])
    ids = np.array([[7, 0, 0], [1, 2, 3]])
    cache = np.arange(20, dtype=np.float32).reshape(2, 1, 5, 2)
    arrays = {"input_ids": ids, "past_lengths": past, "lengths": lengths, "past": cache}
    fed = PagedSession(SimpleNamespace(get_inputs=lambda: [port])).packed(arrays, [state])

    table, slots = fed["block_table"], fed["slot_mapping"]
    assert [4 * table[0, 1] + 1, *(4 * table[1, 0] + place for place in range(3))] == slots[:4].tolist()
    assert [-1, -1, -1] == slots[4:].tolist()
    assert 3 == len({*table[0].tolist(), int(table[1, 0])})
    assert ([7, 1, 2, 3, 0, 0, 0], [5, 0, 1, 2, 0, 0, 0]) == (fed["input_ids"].tolist(), fed["positions"].tolist())
    assert ([0, 1, 4, 4], [5, 0, 0]) == (fed["cumulative_lengths"].tolist(), fed["past_lengths"].tolist())
    assert [3, 6, 0] == fed["attention_bounds"].tolist()
    flat = fed["past"].reshape(-1, 2)
    held = [4 * table[0, place // 4] + place % 4 for place in range(5)]
    assert cache[0, 0].tolist() == flat[held].tolist()
    assert len(flat) - 5 == int(np.isnan(flat).all(axis=1).sum())


@pytest.mark.parametrize("name", ["tiny-text", "tiny-tags"])
def test_what_a_classifier_says_is_compared_with_torch(name, tiny_repository):
    """Each row, and of a tagger each token. A weight of torch's that differs is found."""
    checkpoint = CHECKPOINTS[name]()
    assert parity_of(checkpoint, tiny_repository / name / "1", FP32).max_abs_error < 1e-3
    with torch.no_grad():
        checkpoint.model.get_parameter("head.bias").view(-1)[0] += 0.05
    with pytest.raises(ParityError, match=r"onnx output probabilities"):
        parity_of(checkpoint, tiny_repository / name / "1", FP32)
