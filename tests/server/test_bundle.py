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
