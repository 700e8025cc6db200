"""Graphs over caches in blocks on ONNX Runtime's CUDA provider, over a stand-in for the device, answer as on the CPU.

PagedAttention's host side is real: what it checks, and what it gives to which kernel. It has no way without a fused
kernel, so flash attention is on here, and src/paging.cpp has what that computes.
"""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from standin import WHY_NOT, counting, verify_clean
from tiny import CHECKPOINTS

from weft_export.export import with_rounded_caches
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.quantization.quantized import quantized
from weft_export.verification.widening import on_cpu
from weft_proto.v1 import bundle_pb2

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")]
FP16, BF16, INT4 = bundle_pb2.PRECISION_FP16, bundle_pb2.PRECISION_BF16, bundle_pb2.PRECISION_INT4_FP16
# What a run does to each of three rows: reads so many tokens of its prompt, decodes (1), or nothing.
RUNS = ((9, 0, 0), (1, 5, 0), (1, 3, 4), (1, 1, 1), (1, 1, 1))
NUM_BLOCKS, TABLE, PADDING = 5, np.array([[3], [1], [4]], np.int32), 2


@pytest.fixture(autouse=True)
def _flash(monkeypatch):
    # The provider reads it when a session is opened.
    monkeypatch.setenv("ORT_DISABLE_FLASH_ATTENTION", "0")


class Sequences:
    """Three sequences in blocks of a session's memory, which nobody has written yet: on a device it is NaN."""

    def __init__(self, session, device):
        self.session, self.device = session, device
        self.past = np.zeros(3, np.int32)
        types = {"tensor(bfloat16)": onnx.TensorProto.BFLOAT16, "tensor(float16)": onnx.TensorProto.FLOAT16}
        types["tensor(int8)"] = onnx.TensorProto.INT8
        self.caches = {}
        for port in session.get_inputs():
            if port.name.startswith("past_key_values"):
                shape = (NUM_BLOCKS, *port.shape[1:])
                kind = types.get(port.type, onnx.TensorProto.FLOAT)
                self.caches[port.name] = ort.OrtValue.ortvalue_from_shape_and_type(shape, kind, device, 0)

    def run(self, tokens):
        """Read each row's new tokens, and return the logits after the last."""
        counts = np.array([len(each) for each in tokens], np.int32)
        rows = np.flatnonzero(counts)
        block_tokens = next(iter(self.caches.values())).shape()[1]
        places = [np.arange(self.past[row], self.past[row] + counts[row]) for row in rows]
        total, spare = (self.past + counts)[rows], np.zeros(PADDING, np.int64)
        fed = {
            "input_ids": np.concatenate([*(tokens[row] for row in rows), spare]),
            "positions": np.concatenate([*places, spare]),
            "cumulative_lengths": np.cumsum([0, *counts[rows]]).astype(np.int32),
            "past_lengths": self.past[rows],
            "block_table": TABLE[rows],
            "slot_mapping": np.concatenate(
                [*(TABLE[row, 0] * block_tokens + each for row, each in zip(rows, places, strict=True)), spare - 1]
            ).astype(np.int32),
            "attention_bounds": np.array([counts.max(), total.max(), total.max()], np.int32),
        }
        binding = self.session.io_binding()
        on_host = {"attention_bounds"}
        values = {
            name: ort.OrtValue.ortvalue_from_numpy(array, *(() if name in on_host else (self.device, 0)))
            for name, array in fed.items()
        }
        for name, value in (values | self.caches).items():
            binding.bind_ortvalue_input(name, value)
        for name, value in self.caches.items():
            binding.bind_ortvalue_output(name.replace("past_key_values", "present"), value)
        binding.bind_output("logits")
        self.session.run_with_iobinding(binding)
        self.past = self.past + counts
        return dict(zip(rows.tolist(), binding.get_outputs()[-1].numpy(), strict=True))


@pytest.mark.parametrize(
    ("name", "precision", "rounds"),
    [
        ("tiny-generate", FP16, False),
        ("tiny-generate", BF16, False),
        ("tiny-gpt", FP16, False),
        ("tiny-window", FP16, False),
        ("tiny-decoder", FP16, False),
        ("tiny-generate", INT4, False),
        ("tiny-generate", FP16, True),
        ("tiny-window", FP16, True),
        ("tiny-decoder", FP16, True),
        ("tiny-generate", INT4, True),
    ],
)
def test_prompts_and_decoding_rows_share_runs_on_a_device(name, precision, rounds, tmp_path):
    """Each row's logits are the CPU's within half precision. No kernel is unknown, and nothing unwritten is read.

    Rounded caches are the CPU's levels, but where a number lies between two.
    """
    original = CHECKPOINTS[name]()
    checkpoint = replace(quantized(original, precision), paged=True)
    if rounds:
        checkpoint = with_rounded_caches(checkpoint, original, ())
    (graph,) = (each for each in graphs_of(checkpoint, precision) if each.role == bundle_pb2.GRAPH_ROLE_DECODER)
    write_graph(graph, tmp_path)
    path = tmp_path / graph.file_name
    here = Sequences(ort.InferenceSession(on_cpu(path), providers=["CPUExecutionProvider"]), "cpu")
    there = Sequences(ort.InferenceSession(path, providers=["CUDAExecutionProvider"], enable_fallback=0), "cuda")
    prompts = np.random.default_rng(0).integers(0, checkpoint.text.target_vocab_size, (3, 9))
    produced = {}

    for counts in RUNS:
        # A row whose prompt is read goes on with what it produced.
        fed = []
        for row, count in enumerate(counts):
            start = here.past[row]
            is_read = count == 1 and row in produced and start >= {0: 9, 1: 8, 2: 4}[row]
            fed.append(np.array([produced[row]]) if is_read else prompts[row, start : start + count])
        expected = here.run(fed)
        with counting() as counts_of_run:
            actual = there.run(fed)
        verify_clean(counts_of_run)
        for row, logits in expected.items():
            bound = (0.15 if precision == BF16 or rounds else 0.02) * logits.std()
            np.testing.assert_allclose(actual[row], logits, atol=bound, rtol=0)
            produced[row] = int(logits.argmax())
