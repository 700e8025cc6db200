"""Servers and pictures that end-to-end tests share."""

from pathlib import Path

import pytest

import weft
from process import ServerProcess

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(demo_repository):
    """One real server over the demo models for all tests of a file."""
    with ServerProcess(demo_repository, log_level="debug", reflection=True) as server:
        server.wait_for("ready")
        yield server


@pytest.fixture
def client(server):
    """A client of that server."""
    with weft.Client(server.target, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def scene():
    """A picture for the captioning model."""
    return next(iter(sorted((ROOT / "export/checkpoints/scenes/examples").glob("*.png")))).read_bytes()


@pytest.fixture(scope="session")
def digit():
    """(picture, label) for the image classifier."""
    path = next(iter(sorted((ROOT / "export/checkpoints/digits/examples").glob("*.png"))))
    return path.read_bytes(), path.stem[0]
