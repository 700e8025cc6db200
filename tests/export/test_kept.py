"""What `weft up` knows a bundle by: all that it is made of."""

import sys
from importlib.metadata import version

import pytest

import weft_proto
from weft_export.checkpoints import exporter
from weft_export.up.kept import key_of, model_name


@pytest.fixture
def checkpoint(tmp_path):
    """A folder with a config."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text('{"family": "bag"}')
    return tmp_path / "a"


def test_another_content_name_or_option_is_another_bundle(checkpoint):
    """A bundle is found again by what it is made of, wherever the folder lies; a card beside it counts not."""
    key = key_of(checkpoint, "a", {"precision": "fp32"})
    (checkpoint / "README.md").write_text("a card")
    moved = checkpoint.rename(checkpoint.parent / "b")

    assert key == key_of(moved, "a", {"precision": "fp32"})
    assert key != key_of(moved, "b", {"precision": "fp32"}), "one repository would serve a model under two names"
    assert key != key_of(moved, "a", {"precision": "int8"})
    for folder in ("onnx", "1_Pooling"):
        (moved / folder).mkdir()
        (moved / folder / "config.json").write_text("{}")
        assert (folder == "onnx") == (key == key_of(moved, "a", {"precision": "fp32"}))
    (moved / "1_Pooling" / "config.json").unlink()
    (moved / "config.json").write_text("[]")
    assert key != key_of(moved, "a", {"precision": "fp32"})


def test_all_parts_of_a_gguf_file_count_and_nothing_beside_them(tmp_path):
    """A file of weights in one folder with others is known by its own bytes, and those of its other parts."""
    first, second = (tmp_path / f"a-0000{number}-of-00002.gguf" for number in (1, 2))
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    key = key_of(first, "a", {})

    (tmp_path / "b.gguf").write_bytes(b"3")
    assert key == key_of(first, "a", {})
    second.write_bytes(b"3")
    assert key != key_of(first, "a", {})


def test_the_vocabulary_beside_a_file_of_rwkv_counts_and_nothing_else_there(tmp_path):
    """It says how texts are cut, so another one makes another bundle."""
    path, vocabulary = tmp_path / "a.pth", tmp_path / "rwkv_vocab_v20230424.txt"
    path.write_bytes(b"1")
    vocabulary.write_bytes(b"2")
    key = key_of(path, "a", {})

    (tmp_path / "b.pth").write_bytes(b"3")
    assert key == key_of(path, "a", {})
    vocabulary.write_bytes(b"3")
    assert key != key_of(path, "a", {})


def test_another_version_of_what_exports_is_another_bundle(checkpoint, monkeypatch):
    """Another torch or ONNX Runtime may make other graphs. One that is not installed is no error."""
    key = key_of(checkpoint, "a", {})

    assert {version("torch"), version("onnx"), version("onnxscript")} <= set(exporter.versions())
    monkeypatch.setattr(exporter, "_RUN", ("torch", "no-such-package"))
    assert [version("torch"), ""] == exporter.versions()
    assert key != key_of(checkpoint, "a", {})


@pytest.mark.parametrize("file", ["bag.py", "bag/__init__.py", "bag/deep/module.py"])
def test_the_sources_of_a_family_of_others_count_where_the_checkpoint_names_it(checkpoint, monkeypatch, file):
    """A family behind an entry point is found without being imported; for other checkpoints it does not count."""
    home = checkpoint.parent / "site"
    source = home / file
    source.parent.mkdir(parents=True)
    if file.startswith("bag/"):
        (home / "bag" / "__init__.py").write_text("1 / 0")
    source.write_text("1 / 0")
    (home / "bag-1.dist-info").mkdir()
    (home / "bag-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: bag\nVersion: 1\n")
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    (home / "bag-1.dist-info" / "entry_points.txt").write_text(f"[weft.families]\nbag = {module}:FAMILY\n")
    monkeypatch.setattr(sys, "path", [str(home), *sys.path])
    key = key_of(checkpoint, "a", {})
    source.write_text("2 / 0")

    assert key != key_of(checkpoint, "a", {})
    (checkpoint / "config.json").write_text('{"family": "gpt"}')
    key = key_of(checkpoint, "a", {})
    source.write_text("3 / 0")
    assert key == key_of(checkpoint, "a", {})


def test_the_contract_and_the_exporter_count(checkpoint):
    """The sources of weft_export and weft_proto are digested, .proto files with them."""
    names = {name for name, _ in exporter.sources(checkpoint)}

    assert {"weft_export/export.py", "weft_proto/bundle_rules.py", "weft_proto/v1/bundle.proto"} <= names
    assert next(iter(weft_proto.__path__)) in str(dict(exporter.sources(checkpoint))["weft_proto/bundle_rules.py"])


def test_a_folder_s_name_becomes_a_model_s():
    """It is as near as the rule for names allows."""
    assert ["smollm2-135m-instruct", "model", "a_b.c"] == list(
        map(model_name, ("SmolLM2-135M-Instruct", "..", "_a_b.c"))
    )
