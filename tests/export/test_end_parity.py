"""Parity where a context ends, and its costs: they follow what requests use, and not how long a context may be."""

from pathlib import Path

import pytest
import torch
from copied_parity import parity_of
from tiny import CHECKPOINTS, tiny_generate

from weft_export.checkpoints.random_requests import MAX_PROMPT, MAX_SOURCE, random_requests
from weft_export.errors import ParityError
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_export.graphs.answering import Row, write
from weft_export.graphs.graphs import graphs_of, states_of, zeros_of
from weft_export.verification import end_parity
from weft_export.verification.runtime import onnx_run
from weft_proto.v1 import bundle_pb2

FP32, INT8 = bundle_pb2.PRECISION_FP32, bundle_pb2.PRECISION_INT8
CONTEXT = 131_072


def long_generate():
    """The tiny generator with a context that no prompt of a proof may fill."""
    checkpoint = tiny_generate()
    sizes = {"d_model": 64, "num_heads": 4, "num_kv_heads": 2, "d_ff": 96, "num_layers": 2}
    checkpoint.text.max_total_tokens = CONTEXT
    checkpoint.text.max_new_tokens = CONTEXT - 1
    with torch.device("meta"):
        model = CausalLm(CausalLmConfig(vocab_size=300, max_tokens=CONTEXT, **sizes))
    object.__setattr__(checkpoint, "model", model)
    return checkpoint


@pytest.mark.parametrize("table", ["cos", "sin"])
def test_the_last_position_is_proved(table, tiny_repository):
    """A table of positions that is wrong in its last row alone is found, though no prompt is as long."""
    checkpoint = CHECKPOINTS["tiny-generate"]()
    getattr(checkpoint.model, table)[checkpoint.text.max_total_tokens - 1] += 0.01

    with pytest.raises(ParityError, match=r"of its size"):
        parity_of(checkpoint, tiny_repository / "tiny-generate" / "1", FP32)


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-translate"])
def test_a_context_that_is_full_ends_as_torch_s(name, tiny_repository):
    """Of a generator, and of a model whose decoder also reads the memory of a source. So do their scores agree."""
    report = parity_of(CHECKPOINTS[name](), tiny_repository / name / "1", FP32, scores=True)
    assert 0 < report.max_abs_error < 1e-3


def test_entries_that_came_before_stay(tiny_repository, monkeypatch):
    """A run that writes over another token's keys is found."""
    real = end_parity.run_in_place

    def scribbling(session, feeds, states):
        outputs = real(session, feeds, states)
        outputs["present.1.key"][0, 0, 3, 0] += 1
        return outputs

    monkeypatch.setattr(end_parity, "run_in_place", scribbling)
    with pytest.raises(ParityError, match=r"changes entries of state present\.1\.key that came before"):
        parity_of(CHECKPOINTS["tiny-generate"](), tiny_repository / "tiny-generate" / "1", FP32)


def test_requests_are_short_in_a_long_context():
    """Prompts and sources are bounded, and one of each is a single token."""
    checkpoint = long_generate()
    lengths = [request.num_given for request in random_requests(checkpoint, 16)]
    assert (MAX_PROMPT, 1) == (max(lengths), min(lengths))

    translate = CHECKPOINTS["tiny-translate"]()
    translate.text.max_source_tokens = CONTEXT
    lengths = [request.memory_length for request in random_requests(translate, 16)]
    assert MAX_SOURCE == lengths[0]
    assert MAX_PROMPT >= max(lengths[1:])


def test_states_take_no_memory_before_they_are_written():
    """The examples of ports, and empty caches, are pages that the system has not given yet."""
    checkpoint = long_generate()
    before = _resident_bytes()
    states = [zeros_of(state, 64) for state in states_of(checkpoint.model, FP32)]

    assert sum(state.nbytes for state in states) > 4 * 10**9
    assert _resident_bytes() - before < 64 * 2**20

    for state in states:
        state[:, :, :8] = 1  # of 131,072 positions
    assert _resident_bytes() - before < 128 * 2**20


@pytest.mark.parametrize("precision", [FP32, INT8])
def test_a_graph_writes_into_its_caches(precision, tiny_repository, int8_repository):
    """Caches are given as long as the rows get, come back whole, and are written in place from then on."""
    directory = {FP32: tiny_repository / "tiny-generate", INT8: int8_repository / "tiny-generate-int8"}[precision] / "1"
    checkpoint = tiny_generate()
    seen = []
    run = onnx_run(graphs_of(checkpoint, FP32), directory)

    def watched(role, inputs):
        outputs = run(role, inputs)
        seen.append((inputs["past_key_values.0.key"], outputs["present.0.key"]))
        return outputs

    rows = [Row(None, [5, 6, 7]), Row(None, [9])]
    write(watched, checkpoint, rows, 4)

    assert [7, 5] == [len(row.tokens) for row in rows]
    assert (2, 2, 7, 16) == seen[0][0].shape
    addresses = {array.data_ptr() for given, made in seen[1:] for array in (given, made)}
    assert {seen[0][1].data_ptr()} == addresses
    assert (2, 2, 64, 16) == seen[-1][1].shape
    assert not seen[-1][1][:, :, 7:].any()


def _resident_bytes():
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * 4096
