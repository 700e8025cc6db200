"""Products of 8-bit integers, in the sessions of the server and of the exporter: exact on every processor."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft_export.verification.session import open_session
from weft_proto.session_entries import SESSION_ENTRIES, session_entries
from weft_server.runtime.session import Session

WIDTH, COLUMNS = 130, 33
RNG = np.random.default_rng(0)
# Of each row and each column: numbers of any size, and the largest of one sign, of which pairs do not fit in 16 bits.
LEVELS = np.concatenate([RNG.integers(1, 256, (9, WIDTH)), np.full((1, WIDTH), 255), np.full((1, WIDTH), 1)])
WEIGHTS = np.concatenate([RNG.integers(-127, 128, (WIDTH, COLUMNS - 1)), np.full((WIDTH, 1), 127)], axis=1)


def written(path):
    """Write a graph of one product, as exports at int8 have them."""
    given = {
        "weights": WEIGHTS.astype(np.int8),
        "one": np.float32(1),
        "scale": np.ones(COLUMNS, np.float32),
        "zero_point": np.uint8(128),
    }
    product = helper.make_node("MatMulIntegerToFloat", ["levels", *given], ["sums"], domain="com.microsoft")
    graph = helper.make_graph(
        [product],
        "product",
        [helper.make_tensor_value_info("levels", TensorProto.UINT8, ["rows", WIDTH])],
        [helper.make_tensor_value_info("sums", TensorProto.FLOAT, ["rows", COLUMNS])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in given.items()],
    )
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=10), path)
    return path


def by_server(path, num_threads, feeds):
    """Run a graph as the server does."""
    return Session(path, num_threads).run(feeds)["sums"]


def by_exporter(path, num_threads, feeds):
    """Run a graph as the exporter's proofs do."""
    return open_session(path, num_threads).run(None, feeds)[0]


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("run", [by_server, by_exporter])
def test_sums_of_integers_are_exact(run, num_threads, tmp_path):
    """A product of unsigned and signed 8-bit integers is that of numpy's integers, whatever the levels are.

    x86 processors without VNNI multiply in pairs of 16 bits, which overflow unless ONNX Runtime is told to care.
    """
    path = written(tmp_path / "product.onnx")
    expected = (LEVELS - 128) @ WEIGHTS

    for rows in (slice(0, 1), slice(9, 10), slice(10, 11), slice(0, 2), slice(0, 11)):
        sums = run(path, num_threads, {"levels": LEVELS[rows].astype(np.uint8)})
        assert np.array_equal(expected[rows], sums)


@pytest.mark.parametrize(
    ("flags", "unsigned"),
    [("avx2 fma", True), ("avx2 avx512f", True), ("avx2 avx512f avx512_vnni", False), ("avx2 avx_vnni", False)],
)
def test_weights_become_unsigned_where_sums_would_overflow(flags, unsigned):
    """That is without VNNI. Where nothing is known of the processor, sums are right rather than fast."""
    cpuinfo = ["processor\t: 0", f"flags\t\t: fpu {flags}", "bugs\t\t: avx512_vnni"]

    assert unsigned == bool(session_entries(cpuinfo))
    assert session_entries([])


@pytest.mark.skipif("vnni" not in Path("/proc/cpuinfo").read_text(), reason="no VNNI")
def test_weights_stay_signed_where_the_processor_has_vnni(tmp_path):
    """Products of unsigned weights would take twice as long there."""
    path = written(tmp_path / "product.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "opened.onnx")
    for name, value in SESSION_ENTRIES.items():
        options.add_session_config_entry(name, value)
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    (weights,) = (each for each in onnx.load(tmp_path / "opened.onnx").graph.initializer if list(each.dims)[1:])
    assert weights.data_type == TensorProto.INT8
