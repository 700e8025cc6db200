"""A fake server for each test, and a client that talks to it."""

import pytest

import weft
from fakes import fake_server


@pytest.fixture
def server():
    """A fake server on a free port."""
    with fake_server() as running:
        yield running


@pytest.fixture
def client(server):
    """A client of that server."""
    with weft.Client(server.target, timeout=10.0) as open_client:
        yield open_client
