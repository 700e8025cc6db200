"""Whatever an ONNX file holds, its bundle is loaded or refused, and the process lives on."""

import asyncio
import hashlib
import json
import shutil
from pathlib import Path

import onnx
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from bounded import Bounded
from loaded import refusal_of
from mutations import budget, mutated_bytes, mutated_message
from weft_server.bundle.load import load_bundle
from weft_server.errors import BundleError

GRAPHS = [
    ("tiny-text", "classifier.onnx"),
    ("tiny-generate", "decoder.onnx"),
    ("tiny-translate", "encoder.onnx"),
    ("tiny-rnn", "decoder.onnx"),
]


def put(directory, file, content):
    """Write a file of a bundle, and say so in its manifest."""
    directory = Path(directory)
    (directory / file).write_bytes(content)
    manifest = json.loads((directory / "bundle.json").read_bytes())
    (entry,) = (entry for entry in manifest["files"] if entry["path"] == file)
    entry["sizeBytes"], entry["sha256"] = str(len(content)), hashlib.sha256(content).hexdigest()
    (directory / "bundle.json").write_text(json.dumps(manifest))


def verify(directory, file, content):
    """Why a server refuses a bundle with this graph before it opens it, or nothing."""
    put(directory, file, content)
    try:
        load_bundle(Path(directory))
    except BundleError as error:
        return str(error)
    return ""


def load(directory, file, content):
    """The same, and the graph is opened and tried. A server takes any Exception of a load for a refusal."""
    return verify(directory, file, content) or asyncio.run(refusal_of(directory))


@pytest.fixture(scope="module")
def bundles(tiny_repository, tmp_path_factory):
    """Copies of bundles: where each lies, and its graph."""
    copies = tmp_path_factory.mktemp("bundles")
    for name, _ in GRAPHS:
        shutil.copytree(tiny_repository / name, copies / name)
    return {
        (name, file): (str(copies / name / "1"), (copies / name / "1" / file).read_bytes()) for name, file in GRAPHS
    }


@pytest.fixture(scope="module")
def verifying():
    """`verify` in a process of its own."""
    with Bounded(__file__, "verify") as call:
        yield call


@pytest.fixture(scope="module")
def loading():
    """`load` in a process of its own."""
    with Bounded(__file__, "load") as call:
        yield call


@budget(50)
@given(which=st.sampled_from(GRAPHS), data=st.data())
def test_any_bytes(bundles, verifying, which, data):
    """Bytes of a graph, changed."""
    directory, content = bundles[which]
    assert 1 >= len(verifying(directory, which[1], data.draw(mutated_bytes([content]))).splitlines())


@pytest.mark.long
@budget(8)
@given(which=st.sampled_from(GRAPHS), data=st.data())
def test_any_graph_is_loaded_or_refused(bundles, loading, which, data):
    """Names, shapes, types and attributes, changed. ONNX Runtime may refuse it, and should not end the process.

    It does, over about one graph in a thousand (docs/bundle.md), so this is no test for CI.
    """
    directory, content = bundles[which]
    model = data.draw(mutated_message([onnx.load_from_string(content)], most=2))
    event("refused" if loading(directory, which[1], model.SerializeToString()) else "taken")
