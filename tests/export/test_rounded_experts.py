"""Mixtures of experts are rounded, also those of which nobody asked some expert while rounding was measured."""

import pytest
import torch
from tiny_decoder import tiny_decoder
from tiny_mixture import tiny_mixture

from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.layers.block_linear import BlockLinear
from weft_export.layers.nf4_linear import Nf4Linear
from weft_export.layers.quantized_linear import QuantisedLinear
from weft_export.options import ExportOptions
from weft_export.quantization.quantized import quantized
from weft_export.quantization.unasked import note_of_experts
from weft_proto.v1 import bundle_pb2

UNASKED = "1 of 3 experts read no token of what rounding was measured on: what it costs them is not known"
INT8, INT4, NF4 = bundle_pb2.PRECISION_INT8, bundle_pb2.PRECISION_INT4, bundle_pb2.PRECISION_NF4


def with_an_unasked_expert():
    """A mixture of three, whose first expert is never the best: of two opposite scores, one is above 0."""
    checkpoint = tiny_mixture(3)
    router = checkpoint.model.layers[0].feed_forward.router
    with torch.no_grad():
        router[0], router[2] = 0, -router[1]
    return checkpoint


@pytest.mark.parametrize(("precision", "kind"), [(INT8, QuantisedLinear), (INT4, BlockLinear), (NF4, Nf4Linear)])
def test_experts_that_nobody_asked_are_rounded(precision, kind):
    """Nothing says that rounding them costs anything, so they are rounded as most are."""
    model = quantized(with_an_unasked_expert(), precision).model
    mixture = model.layers[0].feed_forward
    read = [0] * len(mixture.experts)
    for number, expert in enumerate(mixture.experts):
        expert.register_forward_pre_hook(lambda _, given, number=number: read.__setitem__(number, len(given[0])))
    with torch.inference_mode():
        logits = model.decode(torch.arange(64)[None])

    assert logits.isfinite().all()
    # An unasked one reads the row that nobody looks at.
    assert 1 == min(read)
    unasked = mixture.experts[read.index(1)]
    assert [kind] * 3 == [type(getattr(unasked, name)) for name in ("gate_proj", "up_proj", "down_proj")]


def test_how_many_experts_nobody_asked_is_said():
    """For whoever exports a model; and nothing is said of one whose experts were all asked, or that has none."""
    assert UNASKED == note_of_experts(with_an_unasked_expert(), ())
    assert [None, None] == [note_of_experts(checkpoint, ()) for checkpoint in (tiny_mixture(3, 3), tiny_decoder())]


@pytest.mark.slow
def test_an_export_says_how_many_experts_nobody_asked(tmp_path):
    """They are in the bundle as all others are."""
    save_checkpoint(tmp_path / "checkpoint", with_an_unasked_expert())
    options, notes = ExportOptions(precision="int8", no_explain=True, no_score=True), []
    made = export_checkpoint(tmp_path / "checkpoint", tmp_path / "mixture" / "1", options, on_note=notes.append)
    assert UNASKED in notes
    assert 0 < made.manifest.parity.max_abs_error < 1e-2
