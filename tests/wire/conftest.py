"""Servers for callers that speak HTTP/2 themselves."""

import pytest

from process import ServerProcess
from raw_http2 import RawCaller
from wire_asks import MEBIBYTE, TOKEN

# Small messages, so that many of them are soon sent.
SMALL = {"max_request_bytes": 4 * MEBIBYTE, "max_held_bytes": 16 * MEBIBYTE}


@pytest.fixture(scope="session")
def few(demo_repository, tmp_path_factory):
    """A repository of two small models."""
    folder = tmp_path_factory.mktemp("few")
    for name in ("digits", "pydocs"):
        (folder / name).symlink_to(demo_repository / name)
    return folder


@pytest.fixture(scope="session")
def patient(few):
    """A server that asks nobody who they are, and waits as long as it does by default."""
    with ServerProcess(few, **SMALL) as server:
        server.wait_for("ready")
        yield server


@pytest.fixture(scope="session")
def hasty(few):
    """One that waits four seconds for each message and for each answer to be read.

    A machine that stands still for two makes no honest call late.
    """
    with ServerProcess(few, **SMALL, receive_timeout_s=4, send_timeout_s=4) as server:
        server.wait_for("ready")
        yield server


@pytest.fixture(scope="session")
def closed(few, tmp_path_factory):
    """One that knows one caller, by TOKEN, and has places for sixteen connections at each of its ports."""
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"known call,metrics {TOKEN}\n")
    tokens.chmod(0o600)
    with ServerProcess(few, **SMALL, tokens=tokens, max_connections=16, api_port=0) as server:
        server.headers = {"Authorization": f"Bearer {TOKEN}"}
        server.wait_for("ready")
        yield server


@pytest.fixture
def raw(patient):
    """One connection to the patient server."""
    with RawCaller(patient.target) as caller:
        yield caller
