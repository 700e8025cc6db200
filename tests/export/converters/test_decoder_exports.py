"""Converted models as graphs: ONNX Runtime agrees with torch, and rows stay alone, where layers are of rarer kinds."""

import numpy as np
import onnxruntime
import pytest
import torch
from decoder_draws import ids
from decoder_kinds import DECODERS
from hf_models import Kind, converted, made

from weft_export.export import export_checkpoint
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.options import ExportOptions
from weft_export.verification.session import open_session
from weft_proto.bundle_rules import READS_ALL
from weft_proto.v1 import bundle_pb2

CLASSES = {kind.name: kind.architecture for kind in DECODERS}
ROWS, CONTEXT = 5, 48
PARALLEL = {
    **ids(),
    "hidden_size": 60,
    "num_attention_heads": 3,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "use_parallel_residual": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.4},
}
ALIBI = {**ids(), "hidden_size": 72, "n_head": 3, "n_layer": 2}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sizes"), [("gpt_neox", PARALLEL), ("bloom", ALIBI)], ids=["parallel", "alibi"])
def test_rarer_layers_are_exported(name, sizes, tmp_path):
    """Heads of 20 and 24 numbers, a part of each turned, or a bias on the scores: steps, prompts and mixed runs."""
    made(Kind(name, CLASSES[name], lambda _: sizes), 0, tmp_path)
    bundle = tmp_path / "model" / "1"
    # The graphs that explain and score are not asked.
    options = ExportOptions(mixed_runs=True, no_explain=True, no_score=True, max_tokens=CONTEXT)
    manifest = export_checkpoint(tmp_path, bundle, options).manifest
    assert 0 < manifest.parity.max_abs_error < 1e-5

    session = onnxruntime.InferenceSession(bundle / "decoder.onnx", providers=["CPUExecutionProvider"])
    check_rows(session, {state.past: state.shape for state in manifest.states})


def check_rows(session, states):
    """A step of five rows at other places: each row alone has the bits that it has among the others."""
    generator = np.random.default_rng(0)
    feeds = {past: generator.standard_normal((ROWS, *shape)).astype(np.float32) for past, shape in states.items()}
    feeds |= {"input_ids": generator.integers(0, 300, (ROWS, 1)), "lengths": np.ones(ROWS, np.int32)}
    feeds["past_lengths"] = np.array([0, 3, CONTEXT - 1, 7, 20], np.int32)
    shared = {"total_length": np.array([CONTEXT], np.int32)}
    if any(port.name == READS_ALL for port in session.get_inputs()):
        shared[READS_ALL] = np.ones(1, np.int32)
    together = session.run(None, {**feeds, **shared})
    for rows in ([4, 3, 2, 1, 0], [1, 3], *([row] for row in range(ROWS))):
        some = session.run(None, {**{port: value[rows] for port, value in feeds.items()}, **shared})
        for whole, part in zip(together, some, strict=True):
            assert np.array_equal(whole[rows], part), f"rows {rows}"
    return feeds, dict(zip((port.name for port in session.get_outputs()), together, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["olmoe", "olmo2", "gpt_oss", "cohere", "arcee"])
def test_a_step_of_newer_layers_keeps_rows_alone(name, tmp_path):
    """Experts, all queries normed together, one norm without bias, a squared ReLU: torch's logits, rows alone."""
    (kind,) = (each for each in DECODERS if each.name == name)
    made(Kind(name, kind.architecture, lambda rng: {**kind.draw(rng), "num_hidden_layers": 1}), 0, tmp_path)
    checkpoint = converted(tmp_path, max_tokens=CONTEXT)
    graph = next(each for each in graphs_of(checkpoint, bundle_pb2.PRECISION_FP32) if each.file_name == "decoder.onnx")
    write_graph(graph, tmp_path)
    states = {f"past_key_values.{state.name}": state.shape for state in checkpoint.model.states}
    session = open_session(tmp_path / graph.file_name)
    feeds, given = check_rows(session, states)

    with torch.inference_mode():
        alone = checkpoint.model.decode(torch.tensor(feeds["input_ids"][:1]))
    assert np.abs(given["logits"][0] - alone[0, 0].numpy()).max() < 1e-4
