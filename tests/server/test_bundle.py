"""A bundle is loaded whole or refused with one clear sentence, before anything in it is run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafts import MAKERS, translate
from weft_server.bundle.load import load_bundle
from weft_server.errors import BundleError


@pytest.mark.parametrize("make", MAKERS)
def test_a_sound_bundle_of_each_task_loads(tmp_path, make):
    """A bundle that keeps the contract loads, with its name and version from where it lies."""
    draft = make(tmp_path / "tiny" / "3")
    bundle = load_bundle(draft.write())
    assert ("tiny", 3) == (bundle.name, bundle.version)
    assert draft.manifest == bundle.manifest
    for graph in bundle.manifest.graphs:
        assert bundle.path(graph.path).is_file()
        assert bundle.graph(graph.role) == graph


def _outcome(directory):
    try:
        return load_bundle(directory).version
    except BundleError as error:
        return f"refused in {len(str(error).splitlines())} line"


@settings(max_examples=100, deadline=None)
@given(make=st.sampled_from(MAKERS), at=st.integers(0, 4000), garbage=st.binary(min_size=1, max_size=6))
def test_any_damage_to_the_manifest_is_a_bundle_error(tmp_path_factory, make, at, garbage):
    """Whatever bytes are overwritten in bundle.json: a bundle or a one-line BundleError, never another exception."""
    draft = make(tmp_path_factory.mktemp("fuzz") / "tiny" / "1")
    path = draft.write() / "bundle.json"
    data = bytearray(path.read_bytes())
    at %= len(data)
    data[at : at + len(garbage)] = garbage
    path.write_bytes(data)
    assert _outcome(draft.directory) in {1, "refused in 1 line"}


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, 4000), garbage=st.binary(min_size=1, max_size=6))
def test_any_damage_to_a_graph_is_a_bundle_error(tmp_path_factory, at, garbage):
    """Whatever bytes a graph holds, digest and size being right: a bundle or a one-line BundleError."""
    draft = translate(tmp_path_factory.mktemp("fuzz") / "tiny" / "1")
    data = bytearray(draft.models.pop("decoder.onnx").SerializeToString())
    at %= len(data)
    data[at : at + len(garbage)] = garbage
    draft.files["decoder.onnx"] = bytes(data)
    assert _outcome(draft.write()) in {1, "refused in 1 line"}


def test_what_is_no_version_is_no_bundle(tmp_path):
    """A folder whose name is no number, and a file in the place of a folder."""
    draft = translate(tmp_path / "tiny" / "new")
    with pytest.raises(BundleError, match=r"new is not a version: its name is no number$"):
        load_bundle(draft.write())
    (tmp_path / "tiny" / "1").touch()
    with pytest.raises(BundleError, match=r"^[^ ]+: Not a directory$"):
        load_bundle(tmp_path / "tiny" / "1")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda spec: None, "has no layer"),
        (lambda spec: spec.layers.add(inputs=1, outputs=1, rank=1), "one without a name"),
        (lambda spec: [spec.layers.add(name="a", inputs=1, outputs=1, rank=1) for _ in range(2)], "a name twice"),
        (lambda spec: spec.layers.add(name="a", inputs=1, rank=1), "without inputs, outputs or rank"),
    ],
    ids=["none", "nameless", "twice", "sizeless"],
)
def test_a_bundle_says_which_layers_take_adapters(tmp_path, change, why):
    """Each once, with its name and its sizes."""
    draft = translate(tmp_path / "tiny" / "1")
    draft.manifest.adapters.SetInParent()
    change(draft.manifest.adapters)
    with pytest.raises(BundleError, match=why):
        load_bundle(draft.write())
