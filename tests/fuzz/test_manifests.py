"""Whatever a bundle.json says, its bundle is verified or refused with one line, and loading it ends."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from google.protobuf import json_format
from hypothesis import event, given
from hypothesis import strategies as st

from bounded import Bounded
from loaded import refusal_of
from mutations import budget, mutated_bytes, mutated_json, mutated_message
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.config import read_config
from weft_server.errors import BundleError
from weft_server.loading.build import widths_of
from weft_server.loading.memory_check import memory_need_of
from weft_server.requests.decoding_config import verify_default

NAMES = (
    "tiny-generate",
    "tiny-translate",
    "tiny-tags",
    "tiny-extract",
    "tiny-masks",
    "tiny-image",
    "tiny-rnn",
)


def verify(directory, content):
    """Why a server refuses a bundle with this bundle.json before it opens a graph, or nothing."""
    directory = Path(directory)
    (directory / "bundle.json").write_bytes(content)
    try:
        bundle = load_bundle(directory)
        config = read_config(repository=directory)
        if TASKS[bundle.manifest.task].writes_text:
            verify_default(bundle.manifest, widths_of(bundle.manifest, config))
    except BundleError as error:
        return str(error)
    assert min(memory_need_of(bundle, config)) > 0
    return ""


def load(directory, content):
    """The same, and the bundle is loaded. A server takes any Exception of a load for a refusal."""
    why = verify(directory, content)
    return why or asyncio.run(refusal_of(directory))


@pytest.fixture(scope="module")
def bundles(tiny_repository, tmp_path_factory):
    """Copies of bundles: where each lies, and its manifest."""
    copies = tmp_path_factory.mktemp("bundles")
    for name in NAMES:
        shutil.copytree(tiny_repository / name, copies / name)
    return {name: (str(copies / name / "1"), (copies / name / "1/bundle.json").read_bytes()) for name in NAMES}


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


NAME = st.sampled_from(NAMES)


@budget(60)
@given(name=NAME, data=st.data())
def test_any_bytes(bundles, verifying, name, data):
    """Bytes of a manifest, changed."""
    directory, content = bundles[name]
    assert 1 >= len(verifying(directory, data.draw(mutated_bytes([content]))).splitlines())


@budget(100)
@given(name=NAME, data=st.data())
def test_any_json(bundles, verifying, name, data):
    """Values of a manifest, of any kind."""
    directory, content = bundles[name]
    document = data.draw(mutated_json([json.loads(content)]))
    assert 1 >= len(verifying(directory, json.dumps(document).encode()).splitlines())


@budget(12)
@given(name=NAME, data=st.data())
def test_any_manifest_is_loaded_or_refused(bundles, loading, name, data):
    """A message of the right kinds gets further than JSON: graphs are opened and tried."""
    directory, content = bundles[name]
    manifest = json_format.Parse(content, bundle_pb2.BundleManifest())
    message = data.draw(mutated_message([manifest], most=2))
    why = loading(directory, json_format.MessageToJson(message).encode())
    event("refused" if why else "taken")
