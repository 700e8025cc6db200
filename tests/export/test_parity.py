"""Parity: what it compares, and that nothing gets past it."""

import os
import shutil
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from copied_parity import parity_of
from onnx import numpy_helper
from samples import WRITERS
from tiny import CHECKPOINTS, save_tiny
from tiny_parts import picture

from weft_export.errors import ExportError, ParityError
from weft_export.export import export_checkpoint
from weft_export.failed import place_of
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.layers.embeddings import BANNED
from weft_export.options import ExportOptions
from weft_export.quantization.integer_products import quantised
from weft_export.verification import tolerances
from weft_export.verification.parity import check_parity
from weft_export.verification.session import onnxruntime
from weft_export.verification.tolerance import PEAK, SizeTolerance, SpreadTolerance, Tolerance, error_of_many
from weft_export.verification.tolerances import TOLERANCE
from weft_proto.v1 import bundle_pb2

FP32, INT8 = bundle_pb2.PRECISION_FP32, bundle_pb2.PRECISION_INT8
# One of each way to explain: cross-attention, causal, additive, rollout, rollout through windows.
EXPLAINING = ["tiny-translate", "tiny-generate", "tiny-attention-rnn", "tiny-tags", "tiny-swin"]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_untouched_model_passes(name, tiny_repository):
    """The graphs of a model agree with it, and the comparison says how far it went."""
    checkpoint = CHECKPOINTS[name]()
    report = parity_of(checkpoint, tiny_repository / name / "1", FP32)

    assert report.max_abs_error < report.tolerance
    assert 4 * len(checkpoint.towers) == report.num_requests
    assert report.num_steps >= (20 if name in WRITERS else 0)


@pytest.mark.parametrize(
    ("name", "weight", "complaint"),
    [
        ("tiny-text", "head.bias", "probabilities"),
        ("tiny-image", "class_token", "probabilities"),
        ("tiny-match", "pictures.class_token", "image_embedder.onnx output embedding"),
        ("tiny-match", "texts.body.embeddings.positions.weight", "embedder.onnx output embedding"),
        ("tiny-translate", "encoder.norm.bias", "memory_out.0"),
        ("tiny-caption", "decoder.layers.1.cross_attention.value.weight", "memory_out.1.value"),
        ("tiny-translate", "decoder.norm.bias", "logits"),
        ("tiny-generate", "layers.0.attention_norm.weight", "decoder.onnx|present.0"),
        ("tiny-translate", "decoder.layers.1.cross_attention.query.bias", "logits"),
        ("tiny-rnn", "decoder.0.layer.weight_hh_l0", "logits|present_recurrent"),
        ("tiny-attention-rnn", "recurrence.layer.weight_hh_l0", "logits|present_recurrent"),
        ("tiny-show-tell", "gate.bias", "logits|present_recurrent"),
        ("tiny-t5", "decoder.relative_bias.buckets.weight", "logits|present"),
        ("tiny-swin", "blocks.0.attention.bias.table", "probabilities"),
        ("tiny-resnet", "attentions.0.attention.positions.down", "probabilities"),
        ("tiny-gpt", "embedding.positions.weight", "memory|logits|present"),
        ("tiny-tags", "head.weight", "probabilities"),
        ("tiny-extract", "head.labels.bias", "tagger.onnx output probabilities"),
        ("tiny-masks", "dense.weight", "masked_lm.onnx output logits"),
    ],
)
def test_changed_weight_is_found(name, weight, complaint, tiny_repository):
    """One weight that differs between torch and the graphs fails parity, and the message says where it showed."""
    checkpoint = CHECKPOINTS[name]()
    with torch.no_grad():
        parameter = checkpoint.model.get_parameter(weight)
        parameter.view(-1)[0] += 0.05

    with pytest.raises(ParityError, match=complaint):
        parity_of(checkpoint, tiny_repository / name / "1", FP32)


def test_a_mixed_run_with_other_bits_is_found(tiny_repository, tmp_path):
    """A mixed graph of which one weight differs by less than parity would see is refused, and its own is not."""
    checkpoint = CHECKPOINTS["tiny-gpt"]()
    parity_of(checkpoint, tiny_repository / "tiny-gpt" / "1", FP32, mixed_runs=True)
    directory = shutil.copytree(tiny_repository / "tiny-gpt" / "1", tmp_path / "1")
    with torch.no_grad():
        checkpoint.model.get_parameter("layers.1.feed_forward.up_proj.weight").view(-1)[0] += 1e-5
    (graph,) = (g for g in graphs_of(checkpoint, FP32, mixed_runs=True) if g.role == bundle_pb2.GRAPH_ROLE_MIXED)
    write_graph(graph, directory)

    with pytest.raises(ParityError, match=r"has other bits than decoder\.onnx"):
        check_parity(checkpoint, directory, FP32, mixed_runs=True)


@pytest.mark.parametrize("name", ["tiny-translate", "tiny-generate"])
def test_rounded_model_passes_with_room(name, int8_repository):
    """At int8 the graphs are within half of what is allowed: a key between two levels may take the other one."""
    report = parity_of(quantised(CHECKPOINTS[name]()), int8_repository / f"{name}-int8" / "1", INT8)

    assert 2 * report.max_abs_error < report.tolerance
    assert pytest.approx(TOLERANCE[INT8]) == report.tolerance


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("tiny-translate", "encoder.layers.1.feed_forward.up_proj"),
        ("tiny-translate", "decoder.layers.1.cross_attention.query"),
        ("tiny-translate", "decoder.layers.1.feed_forward.up_proj"),
        ("tiny-generate", "layers.0.attention.qkv"),
        ("tiny-generate", "layers.1.feed_forward.up_proj"),
    ],
)
def test_shuffled_product_is_found(name, product, int8_repository):
    """At int8 a product whose columns stand one place further fails parity, small as the model's logits may be."""
    checkpoint = quantised(CHECKPOINTS[name]())
    linear = checkpoint.model.get_submodule(product)
    linear.wide.copy_(linear.wide.roll(1, 1))

    with pytest.raises(ParityError, match=r"differs by .* of its spread"):
        parity_of(checkpoint, int8_repository / f"{name}-int8" / "1", INT8)


@pytest.mark.parametrize("scale", [1e-2, 1, 1e4])
def test_spread_has_no_scale(scale):
    """A share of the spread is the same for small values and large; one value alone may differ PEAK times as much."""
    expected = torch.tensor([1.0, -1.0, 1.0, -1.0])
    tolerance = SpreadTolerance(tolerance=0.15)
    tolerance.compare("x", expected * scale, (expected.numpy() + 0.125) * scale)

    assert pytest.approx(0.125) == tolerance.worst
    with pytest.raises(ParityError, match=r"x differs by 0\.2 of its spread"):
        tolerance.compare("x", expected * scale, (expected.numpy() + 0.2) * scale)
    many = expected.repeat(1000)
    lone = many.clone()
    lone[7] += 0.16 * PEAK
    with pytest.raises(ParityError, match=r"x differs by 0\.16 of its spread"):
        tolerance.compare("x", many * scale, (lone * scale).numpy())


def test_size_has_no_scale():
    """A share of the size is the same for values of tens and of tenths; an offset of all values belongs to it."""
    expected = torch.tensor([3.0, -5.0, 3.0, -5.0])
    share = 0.0625 / 8
    for scale in (0.1, 1, 1e4):
        tolerance = SizeTolerance(tolerance=1e-2)
        actual = expected.clone()
        actual[1] += 0.0625 * 17**0.5 / 8
        tolerance.compare("x", expected * scale, (actual * scale).numpy())
        assert pytest.approx(error_of_many(share / 2, share, 4), rel=1e-3) == tolerance.worst
        actual[1] += 0.05
        with pytest.raises(ParityError, match=r"x differs by 0\.016 of its size"):
            tolerance.compare("x", expected * scale, (actual * scale).numpy())


def test_the_furthest_of_many_may_be_further_off_than_one_and_their_root_mean_square_less():
    """The errors that float32 leaves in a million numbers, some of whose rows are rounded ten times as much as others.

    One number may be off by the tolerance. Of a million the furthest may be off by over three times as much, and the
    root mean square by a quarter. A shift of all, a wrong row and one wrong number are found.
    """
    generator = torch.Generator().manual_seed(0)
    deviation = 1e-4 / 4
    expected = torch.randn(1000, 1000, generator=generator)
    rounding = torch.randn(1000, 1000, generator=generator) * deviation / 10
    rounding[7] *= 10
    rounding[7, 3] = 3.4e-4
    tolerance = SizeTolerance(tolerance=1e-4)
    tolerance.compare("x", expected, (expected + rounding).numpy())
    assert 1e-4 / 2 < tolerance.worst

    for wrong, size in ((slice(None), 0.3e-4), (slice(7, 8), 0.9e-3), ((7, 3), 4e-4)):
        planted = torch.zeros_like(expected)
        planted[wrong] = size
        with pytest.raises(ParityError, match="x differs by"):
            tolerance.compare("x", expected, (expected + planted).numpy())


@pytest.mark.parametrize("kind", [SizeTolerance, SpreadTolerance])
def test_banned_tokens_hide_no_difference(kind):
    """Logits are held to the size of those that are not banned; which tokens are banned is held too."""
    logits = torch.randn(500, generator=torch.Generator().manual_seed(0))
    logits[100:110] = BANNED
    tolerance = kind(tolerance=1e-2)
    rounded = logits.clone()
    rounded[100:110] += 0.5
    tolerance.compare_logits("logits", logits, rounded.numpy())
    wrong = rounded.clone()
    wrong[:50] *= 1.5
    with pytest.raises(ParityError, match="logits differs by"):
        tolerance.compare_logits("logits", logits, wrong.numpy())
    rounded[5] = BANNED
    with pytest.raises(ParityError, match="logits: ONNX Runtime bans other tokens than torch"):
        tolerance.compare_logits("logits", logits, rounded.numpy())
    assert 1 > float(tolerance.near_tie(logits[None]))


def test_what_is_left_of_large_numbers_is_held_to_their_size():
    """A value near 0 keeps the rounding of what it was made of, down to a tenth; `like` says what that was."""
    tolerance = SizeTolerance(tolerance=1e-2)
    tolerance.compare("x", torch.tensor([1e-6]), np.array([9e-4], np.float32))
    tolerance.compare("x", torch.tensor([1e-6]), np.array([0.04], np.float32), torch.tensor([-5.0, 5.0]))
    with pytest.raises(ParityError, match="of its size"):
        tolerance.compare("x", torch.tensor([1e-6]), np.array([1.1e-3], np.float32))
    assert torch.tensor([[0.1, 0.002]]).allclose(tolerance.near_tie(torch.tensor([[[-5.0, 5.0], [0.0, 0.0]]])))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [SizeTolerance, SpreadTolerance])
def test_tolerance_of_shares_refuses(kind, value):
    """NaN and infinity are within no share of a spread or a size."""
    with pytest.raises(ParityError, match="x differs"):
        kind(tolerance=0.15).compare("x", torch.arange(3.0), np.array([0, value, 2], np.float32))


@pytest.mark.parametrize("name", EXPLAINING)
def test_another_models_explanation_is_found(name, tiny_repository, tmp_path):
    """A bundle whose EXPLAIN graph alone is of other weights fails parity there."""
    checkpoint = CHECKPOINTS[name]()
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_repository / name / "1", bundle)
    path = bundle / graphs_of(checkpoint, FP32)[-1].file_name
    stranger = onnx.load(path)
    for weight in stranger.graph.initializer:
        values = numpy_helper.to_array(weight)
        if values.dtype == np.float32 and values.ndim > 1:
            weight.CopyFrom(numpy_helper.from_array(values * np.float32(1.5), weight.name))
    onnx.save(stranger, path)

    with pytest.raises(ParityError, match=r"explain\.onnx output"):
        check_parity(checkpoint, bundle, FP32)


def test_an_explanation_that_shows_nothing_is_found(int8_repository, tmp_path):
    """At int8, where many patches have small weights each: uniform rows are no rounding."""
    checkpoint, blind = quantised(CHECKPOINTS["tiny-swin"]()), CHECKPOINTS["tiny-swin"]()
    bundle = tmp_path / "bundle"
    shutil.copytree(int8_repository / "tiny-swin-int8" / "1", bundle)
    check_parity(checkpoint, bundle, INT8)
    with torch.no_grad():
        for name, parameter in blind.model.named_parameters():
            if "qkv" in name or "bias" in name:
                parameter.zero_()
    write_graph(graphs_of(quantised(blind), INT8)[-1], bundle)

    with pytest.raises(ParityError, match=r"explain\.onnx output (attention|weights)"):
        check_parity(checkpoint, bundle, INT8)


def test_what_failed_stays_and_is_not_traced_again(tmp_path, monkeypatch):
    """When parity fails there is no bundle. Graphs and figures stay where the error says, for the next export.

    Another golden request or description needs no other graphs. Once the proof passes, the bundle alone is left.
    """
    checkpoint, bundle = save_tiny("tiny-image", tmp_path / "checkpoint"), tmp_path / "repository" / "digits" / "1"
    with monkeypatch.context() as broken:
        broken.setattr(tolerances, "float32_tolerance", lambda _: 0.0)
        broken.setitem(tolerances.SHARE_TOLERANCE, FP32, 0.0)
        with pytest.raises(ParityError, match=r"probabilities differs by .* stay in .*\.weft-failed-") as failure:
            export_checkpoint(checkpoint, bundle, ExportOptions(no_explain=True))
    (place,) = tmp_path.glob(".weft-failed-*")
    assert str(place) in str(failure.value)
    assert ["classifier.onnx", "classifier.onnx.data", "figures.txt"] == sorted(path.name for path in place.iterdir())
    assert "classifier.onnx output probabilities: " in (place / "figures.txt").read_text()
    assert sorted(["checkpoint", place.name]) == sorted(path.name for path in tmp_path.iterdir())

    monkeypatch.setattr("weft_export.export.write_graph", None)
    (tmp_path / "other.png").write_bytes(picture(40, 30, "L"))
    export_checkpoint(checkpoint, bundle, ExportOptions(no_explain=True, golden=str(tmp_path / "other.png")))
    assert ["checkpoint", "other.png", "repository"] == sorted(path.name for path in tmp_path.iterdir())
    assert (bundle / "golden.png").read_bytes() == (tmp_path / "other.png").read_bytes()
    assert not (bundle / "figures.txt").exists()


def test_graphs_of_other_weights_are_traced_anew(tmp_path):
    """A failed export's place follows from all that a graph is traced from: weights, precision and ports."""
    checkpoint, other = CHECKPOINTS["tiny-image"](), CHECKPOINTS["tiny-image"]()
    (tmp_path / "config.json").write_text("{}")

    def place(checkpoint, *, explains=True, precision=FP32):
        graphs = graphs_of(replace(checkpoint, explains=explains), FP32)
        return place_of(tmp_path, tmp_path, checkpoint, precision, graphs)

    with torch.no_grad():
        next(other.model.parameters()).view(-1)[0] += 1
    places = [place(checkpoint), place(other), place(checkpoint, explains=False), place(checkpoint, precision=INT8)]
    assert len(places) == len(set(places))
    assert place(checkpoint) == place(CHECKPOINTS["tiny-image"]())
    assert place(checkpoint) == place(replace(checkpoint, description="Another one."))


def test_absent_runtime_is_named(tmp_path, monkeypatch):
    """Without onnxruntime the export says which extra brings it."""
    checkpoint = save_tiny("tiny-image", tmp_path / "checkpoint")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    with pytest.raises(ExportError, match=r"weft-serving\[server,export\]"):
        export_checkpoint(checkpoint, tmp_path / "digits" / "1")


def test_onnx_runtime_is_told_to_report_to_nobody(monkeypatch):
    """An export that loads ONNX Runtime has switched its telemetry off before, where nobody has decided it."""
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    onnxruntime()
    assert "1" == os.environ["ORT_DISABLE_TELEMETRY"]
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    onnxruntime()
    assert "0" == os.environ["ORT_DISABLE_TELEMETRY"]


@pytest.mark.parametrize("value", [1.1, float("nan"), float("inf")])
def test_gauge_refuses(value):
    """A difference above the tolerance fails, and so do NaN and infinity."""
    with pytest.raises(ParityError, match="x differs"):
        Tolerance(tolerance=0.05).compare("x", torch.ones(3), np.array([1, value, 1], np.float32))


def test_gauge_remembers_the_worst():
    """The gauge keeps the largest difference that it let pass, and refuses another shape."""
    tolerance = Tolerance(tolerance=0.5)
    tolerance.compare("x", torch.zeros(2), np.array([0.25, -0.375], np.float32))
    tolerance.compare("x", torch.zeros(2), np.array([0.125, 0], np.float32))

    assert 0.375 == tolerance.worst
    with pytest.raises(ParityError, match="x has shape"):
        tolerance.compare("x", torch.zeros(2), np.zeros(3, np.float32))
