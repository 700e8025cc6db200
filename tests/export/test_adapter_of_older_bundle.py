"""An adapter of a bundle that an earlier exporter made."""

import pytest
from tiny import CHECKPOINTS, save_tiny
from tiny_adapters import linear_shapes, write_adapter

from weft_export.adapters.export_adapter import export_adapter
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_export.verification import explain_parity


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
