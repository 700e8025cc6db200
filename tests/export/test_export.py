"""Exporting: fp16, bf16, where bundles go, and the command line."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import json_format
from tiny import CHECKPOINTS, save_tiny, tiny_generate
from tiny_mixture import tiny_mixture
from tokenizers import Tokenizer, decoders
from typer.testing import CliRunner

from weft_export.__main__ import export_app
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.checkpoints.tokenizer import check_tokenizers
from weft_export.errors import CheckpointError, ExportError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2
from weft_recipes.__main__ import train_app

FP16 = bundle_pb2.PRECISION_FP16


# What explains takes twice the time of all else to trace: of the few it is traced of the smallest alone.
@pytest.mark.parametrize("explains", [False, pytest.param(True, marks=pytest.mark.whole)])
@pytest.mark.parametrize("name", ["tiny-generate", "tiny-image", "tiny-rnn-vanilla", "tiny-swin"])
def test_half_precision(name, explains, tmp_path):
    """An fp16 bundle has float16 weights and states at half the size, float32 answers, and a looser parity.

    It is for a device, so it has no graph that scores.
    """
    explains = explains or name == "tiny-image"
    checkpoint = save_tiny(name, tmp_path / "checkpoint")
    report = export_checkpoint(
        checkpoint, tmp_path / name / "1", ExportOptions(precision="fp16", no_explain=not explains)
    )
    manifest = report.manifest

    assert bundle_pb2.PRECISION_FP16 == manifest.precision
    assert 1e-4 < manifest.parity.max_abs_error <= manifest.parity.tolerance
    # A probability has its own bound, not that of logits.
    assert pytest.approx(0.1 if manifest.states else 0.01) == manifest.parity.tolerance
    assert {state.data_type for state in manifest.states} <= {bundle_pb2.DATA_TYPE_FLOAT16}
    assert bundle_pb2.GRAPH_ROLE_SCORE not in {graph.role for graph in manifest.graphs}
    for graph in manifest.graphs:
        types = {port.name: port.data_type for port in (*graph.inputs, *graph.outputs)}
        for port in ("logits", "topk_logits", "logsumexp", "probabilities", "pixel_values"):
            assert bundle_pb2.DATA_TYPE_FLOAT32 == types.get(port, bundle_pb2.DATA_TYPE_FLOAT32)


@pytest.mark.parametrize("name", ["tiny-rnn-vanilla", "tiny-show-tell", "tiny-resnet", "tiny-speech"])
def test_bf16_of_what_cuda_has_no_kernels_for_is_refused(name, tmp_path):
    """CUDA's recurrent layers and convolutions know no bfloat16; who asks for it is told so, and nothing is written."""
    checkpoint = save_tiny(name, tmp_path / "checkpoint")
    with pytest.raises(ExportError, match="bf16 is not for models that recur or convolve"):
        export_checkpoint(checkpoint, tmp_path / name / "1", ExportOptions(precision="bf16"))
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("asked", [{"precision": "fp16"}, {"precision": "bf16"}, {"precision": "fp16", "paged": True}])
def test_a_mixture_is_for_cpu(asked, tmp_path):
    """A device would have to tell the host how many rows an expert reads; who asks is told, and nothing is written."""
    save_checkpoint(tmp_path / "checkpoint", tiny_mixture(3))
    with pytest.raises(ExportError, match="mixtures of experts run on CPU: fp16, bf16, int4-fp16 and --paged are not"):
        export_checkpoint(tmp_path / "checkpoint", tmp_path / "mixture" / "1", ExportOptions(**asked))
    assert not (tmp_path / "mixture").exists()


@pytest.mark.parametrize(
    ("name", "precision", "complaint"),
    [
        ("tiny-translate", "fp32", "for models that generate"),
        ("tiny-image", "fp32", "for models that generate"),
        ("tiny-generate", "fp16", "not for fp16, bf16 and int4-fp16"),
        ("tiny-generate", "bf16", "not for fp16, bf16 and int4-fp16"),
    ],
)
def test_mixed_runs_where_there_are_none(name, precision, complaint, tmp_path):
    """Whoever asks for mixed runs of a model without prompts, or for a device, is told so, and nothing is written."""
    checkpoint = save_tiny(name, tmp_path / "checkpoint")
    with pytest.raises(ExportError, match=complaint):
        export_checkpoint(checkpoint, tmp_path / name / "1", ExportOptions(precision=precision, mixed_runs=True))
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("path", ["digits", "Digits/1", "digits/0", "digits/v1", "digits/01", "digits/1718200000", "/"])
def test_path_must_name_a_version(path, tmp_path):
    """A bundle goes to <name>/<version>: a lower-case name and a number that a server looks for."""
    with pytest.raises(ExportError, match="ends in <name>/<version>"):
        export_checkpoint(tmp_path, tmp_path / path)


def test_existing_bundle_is_kept(tmp_path):
    """An export refuses to overwrite; with force it replaces the whole directory."""
    checkpoint = save_tiny("tiny-image", tmp_path / "checkpoint")
    bundle = tmp_path / "digits" / "1"
    bundle.mkdir(parents=True)
    (bundle / "bundle.json").touch()

    with pytest.raises(ExportError, match="exists already"):
        export_checkpoint(checkpoint, bundle)
    assert b"" == (bundle / "bundle.json").read_bytes()
    export_checkpoint(checkpoint, bundle, ExportOptions(no_explain=True), force=True)

    names = {"bundle.json", "classifier.onnx", "classifier.onnx.data", "golden.png"}
    assert names == {path.name for path in bundle.iterdir()}
    assert ["1"] == [path.name for path in bundle.parent.iterdir()]


def test_a_bundle_that_cannot_be_replaced_is_kept(tmp_path, monkeypatch):
    """When the new one does not get into its place, the old one is put back."""
    checkpoint, bundle, rename = save_tiny("tiny-text", tmp_path / "checkpoint"), tmp_path / "topics" / "1", Path.rename
    bundle.mkdir(parents=True)
    (bundle / "bundle.json").touch()

    def refused(path, target):
        if path.name == "bundle":
            raise OSError("no")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(ExportError, match="cannot write"):
        export_checkpoint(checkpoint, bundle, ExportOptions(no_explain=True), force=True)
    assert ["bundle.json"] == [path.name for path in bundle.iterdir()]


def test_a_bundle_that_came_meanwhile_is_kept(tmp_path, monkeypatch):
    """Of two exports to one place the first to end has it; the other is refused, and leaves nothing."""
    checkpoint, bundle = save_tiny("tiny-text", tmp_path / "checkpoint"), tmp_path / "topics" / "1"

    def on_stage(name, done, total):
        if name == "writing the bundle":
            bundle.mkdir(parents=True)
            (bundle / "bundle.json").write_text("the other's")

    with pytest.raises(ExportError, match=r"cannot write .*: Directory not empty"):
        export_checkpoint(checkpoint, bundle, ExportOptions(no_explain=True), on_stage=on_stage)
    assert "the other's" == (bundle / "bundle.json").read_text()
    assert ["1"] == [path.name for path in bundle.parent.iterdir()]
    assert ["checkpoint", "topics"] == sorted(path.name for path in tmp_path.iterdir())


def test_a_tokenizer_with_ids_of_billions_is_refused_at_once():
    """It is not written out again: tokenizers would walk through every id."""
    checkpoint = CHECKPOINTS["tiny-text"]()
    tokenizer = json.loads(checkpoint.files["tokenizer.json"])
    tokenizer["model"]["vocab"]["far"] = 2**31
    with pytest.raises(
        CheckpointError, match=r"has the token 'far' with the id 2147483648, but text\.source_vocab_size"
    ):
        check_tokenizers(replace(checkpoint, files={"tokenizer.json": json.dumps(tokenizer).encode()}))


def test_export_is_reproducible(tiny_repository, tmp_path):
    """The same checkpoint gives the same bundle, byte for byte."""
    export_checkpoint(save_tiny("tiny-image", tmp_path / "checkpoint"), tmp_path / "tiny-image" / "1")

    for path in (tiny_repository / "tiny-image" / "1").iterdir():
        assert path.read_bytes() == (tmp_path / "tiny-image" / "1" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda tokenizer: tokenizer.add_tokens([f"more{index}" for index in range(99)]), "text.source_vocab_size"),
        (
            lambda tokenizer: setattr(
                tokenizer, "decoder", decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
            ),
            "mixes ByteLevel",
        ),
    ],
)
def test_a_tokenizer_that_no_server_takes_is_refused(edit, complaint):
    """Ids beyond the model's vocabulary, or a decoder that cannot be streamed."""
    checkpoint = tiny_generate()
    name = checkpoint.text.source_tokenizer
    tokenizer = Tokenizer.from_buffer(checkpoint.files[name])
    edit(tokenizer)
    with pytest.raises(CheckpointError, match=complaint):
        check_tokenizers(replace(checkpoint, files={**checkpoint.files, name: tokenizer.to_str().encode()}))


def test_what_is_no_tokenizer_is_named(tmp_path):
    """One sentence, also where only an int8 export would have opened the file first."""
    checkpoint = save_tiny("tiny-translate", tmp_path / "checkpoint")
    (checkpoint / "target.json").write_text("version https://git-lfs.github.com/spec/v1")
    for precision in ("fp32", "int8"):
        with pytest.raises(CheckpointError, match=r"target\.json is not a tokenizer"):
            export_checkpoint(checkpoint, tmp_path / "en-es" / "1", ExportOptions(precision=precision))


def test_command_line(tmp_path):
    """`weft export` prints what it made, and --quiet nothing else; a mistake is one line and exit code 1."""
    checkpoint, bundle = save_tiny("tiny-text", tmp_path / "checkpoint"), tmp_path / "topics" / "1"

    made = CliRunner().invoke(export_app, [str(checkpoint), str(bundle), "--quiet", "--no-explain"])
    assert (0, "", 1) == (made.exit_code, made.stderr, len(made.stdout.splitlines()))
    assert re.search(r"largest difference from torch .* s, peak memory \d+ MB$", made.stdout, re.MULTILINE)
    json_format.Parse((bundle / "bundle.json").read_text(), bundle_pb2.BundleManifest())

    again = CliRunner().invoke(export_app, [str(checkpoint), str(bundle)])
    assert 1 == again.exit_code
    assert f"weft export: {bundle} exists already; --force replaces it" == again.stderr.splitlines()[-1]


def test_unknown_recipe():
    """`weft train` names the recipes that there are."""
    result = CliRunner().invoke(train_app, ["nonsense"])

    assert 1 == result.exit_code
    assert "there is no recipe 'nonsense'; there are en-es" in result.stderr
