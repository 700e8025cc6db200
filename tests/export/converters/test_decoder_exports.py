"""Converted models as graphs: ONNX Runtime agrees with torch, and rows stay alone, where layers are of rarer kinds."""

import numpy as np
import onnxruntime
import pytest
from decoder_kinds import DECODERS, ids
from hf_models import Kind, made

from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.bundle_rules import READS_ALL

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
    generator = np.random.default_rng(0)
    feeds = {
        state.past: generator.standard_normal((ROWS, *state.shape)).astype(np.float32) for state in manifest.states
    }
    feeds |= {"input_ids": generator.integers(0, 300, (ROWS, 1)), "lengths": np.ones(ROWS, np.int32)}
    feeds["past_lengths"] = np.array([0, 3, CONTEXT - 1, 7, 20], np.int32)
    shared = {"total_length": np.array([CONTEXT], np.int32)}
    if any(port.name == READS_ALL for port in session.get_inputs()):
        shared[READS_ALL] = np.ones(1, np.int32)
    together = session.run(None, {**feeds, **shared})
    for row in range(ROWS):
        alone = session.run(None, {**{port: value[[row]] for port, value in feeds.items()}, **shared})
        for whole, part in zip(together, alone, strict=True):
            assert np.array_equal(whole[[row]], part)
