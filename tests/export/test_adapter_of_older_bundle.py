"""An adapter of a bundle that an earlier exporter made, or one with other options."""

from dataclasses import replace

import pytest
from tiny import CHECKPOINTS, save_tiny, tiny_generate
from tiny_adapters import linear_shapes, write_adapter

from weft_export.adapters.beside import rounded_base
from weft_export.adapters.export_adapter import export_adapter
from weft_export.choices import PRECISIONS
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_export.quantization import choice
from weft_export.quantization.in_blocks import rounded_in_blocks
from weft_export.verification import explain_parity
from weft_proto.v1 import bundle_pb2

INT4 = PRECISIONS["int4"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tells"),
    [("tiny-answer", False), ("tiny-answer", True), ("tiny-git", True)],
    ids=["older", "newer", "git"],
)
def test_an_adapter_is_proved_by_what_its_bundle_tells(tmp_path, monkeypatch, name, tells):
    """Of a bundle that does not say what lay on a question, what lay on the picture is compared. Of others, both."""
    model = CHECKPOINTS[name]().model
    shapes = linear_shapes(model, "qkv", "output")
    checkpoint, bundle = save_tiny(name, tmp_path / "checkpoint"), tmp_path / "models" / name / "1"
    with monkeypatch.context() as patched:
        patched.setattr(type(model), "explains_target", tells)
        export_checkpoint(checkpoint, bundle, ExportOptions(adapters=2))
    compared, opened = [], explain_parity.open_session

    def noting(path, **given):
        session = opened(path, **given)
        compared.extend(output.name for output in session.get_outputs())
        return session

    monkeypatch.setattr(explain_parity, "open_session", noting)
    export_adapter(write_adapter(tmp_path / "own", shapes), bundle, checkpoint)
    assert {"weights", "source_mass"} <= set(compared)
    assert tells == ("target_weights" in compared)


@pytest.mark.parametrize(("most", "tells", "sizes"), [(32, True, {32}), (128, True, {32, 64}), (32, False, {32})])
def test_a_base_has_the_blocks_of_its_bundle(monkeypatch, most, tells, sizes):
    """Also where other products have 8 bits, whose smallest blocks are larger. An older bundle tells no sizes."""
    monkeypatch.setattr(choice, "MAX_BLOCK_EFFECT", 0.2)
    base = tiny_generate()
    expected = rounded_in_blocks(replace(base, max_block_size=most), INT4).rounding
    assert {8: {64}, 4: sizes} == {
        bits: {product.block_size for product in expected.products if product.bits == bits} for bits in (8, 4)
    }
    manifest = bundle_pb2.BundleManifest(precision=INT4, rounding=expected)
    for product in manifest.rounding.products:
        product.block_size *= tells

    assert expected == rounded_base(base, manifest, ()).rounding
