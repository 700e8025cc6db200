"""Lets the tests of this folder find the modules that they share, and one server for all cells without a drain."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import grpc
import pytest
from asking import answers_alone
from cells import TASKS
from http_asking import HttpAsked, bytes_of

from held import Held


@pytest.fixture(scope="module")
def repository(demo_repository, tiny_repository, tmp_path_factory):
    """The demo models, and tiny ones for tasks that have no demo."""
    folder = tmp_path_factory.mktemp("models")
    names = {task.model for task in TASKS.values() if task.model.startswith("tiny-")}
    for model in (*demo_repository.iterdir(), *(tiny_repository / name for name in names)):
        (folder / model.name).symlink_to(model)
    return folder


@pytest.fixture(scope="module")
def server(repository, tmp_path_factory):
    """One server for all cells without a drain."""
    with Held(repository, tmp_path_factory.mktemp("points"), max_restarts=10_000, api_port=0) as server:
        server.wait_for("ready")
        server.api = server.wait_for("listening")["api"]
        yield server


@pytest.fixture(scope="module")
def channel(server):
    """A channel to it."""
    with grpc.insecure_channel(server.target) as channel:
        yield channel


@pytest.fixture(scope="module")
def alone(channel):
    """What each request is answered when nobody is beside it, and nothing goes wrong. By Connect it is the same."""
    return answers_alone(channel)


@pytest.fixture(scope="module")
def alone_by_openai(server, alone):
    """The same of first requests by OpenAI's API: what it answers to a cell."""
    known = {}

    def answer(cell):
        key = cell.task, cell.kind, cell.stage == "explaining"
        if key not in known:
            code, _, known[key] = HttpAsked(server, cell, bytes_of(cell)).end()
            assert "OK" == code, key
        return known[key]

    return answer


@pytest.fixture(scope="module")
def num_tasks(server, alone):
    """How many tasks the server has at rest, once every method was asked."""
    server.wait_until(lambda: server.under_way()["calls"] == 0)
    return server.under_way()["tasks"]
