"""Models load side by side, a few at a time, and none holds up those behind it."""

import asyncio
import threading

import pytest
from prometheus_client import generate_latest

from drafts import generate
from weft_proto.v1 import model_pb2
from weft_server.config import read_config
from weft_server.runtime.cpus import loading_places
from weft_server.serving import explain_proof, loader
from weft_server.serving.loader import load_entries, load_entry
from weft_server.serving.models import Entry
from weft_server.telemetry.metrics import Metrics


@pytest.fixture
def entries(tmp_path):
    """Six entries, in their order."""
    return [Entry(name, 1, tmp_path) for name in "abcdef"]


async def nothing():
    """What is done when all is settled."""


def test_only_a_few_load_at_a_time_and_in_their_order(entries):
    """Each begins when one before it has ended."""
    now, most, begun = set(), 0, []

    async def load(entry):
        nonlocal most
        begun.append(entry.name)
        now.add(entry.name)
        most = max(most, len(now))
        await asyncio.sleep(0)
        now.remove(entry.name)

    asyncio.run(load_entries(entries, load, nothing, num_places=2))
    assert list("abcdef") == begun
    assert 2 == most


def test_one_that_never_ends_holds_up_nobody(entries, monkeypatch):
    """It gives up its place after some patience; the others end, and what comes at the end comes."""
    monkeypatch.setattr(loader, "PATIENCE_S", 0.01)
    ended, settled = [], []

    async def run():
        go = asyncio.Event()

        async def load(entry):
            if entry.name in "ab":  # as many as there are places
                await go.wait()
            ended.append(entry.name)

        async def settle():
            settled.append(sorted(ended))
            go.set()

        await load_entries(entries, load, settle, num_places=2)

    asyncio.run(run())
    assert [list("cdef"), list("abcdef")] == settled


def test_nothing_is_settled_twice_when_nobody_is_late(entries):
    """Moving memory into huge pages is done once."""
    settled = []

    async def load(entry):
        await asyncio.sleep(0)

    async def settle():
        settled.append(True)

    asyncio.run(load_entries(entries, load, settle, num_places=2))
    assert [True] == settled


@pytest.mark.parametrize(("quota", "places"), [(0.5, 2), (2.0, 2), (3.9, 3), (64.0, 4)])
def test_places_follow_the_quota_within_bounds(quota, places):
    """Never one, for a slow model would hold up all; never many, for each takes memory."""
    assert places == loading_places(quota)


def test_a_bundle_that_blocks_its_thread_holds_up_no_other(tiny_repository, monkeypatch):
    """More of them than the loop's own threads: they have threads of their own, and the sound model gets ready."""
    monkeypatch.setattr(loader, "PATIENCE_S", 0.01)
    go, load_bundle = threading.Event(), loader.load_bundle

    def load(directory):
        if directory.parent.name == "tiny-image":
            go.wait()
        return load_bundle(directory)

    monkeypatch.setattr(loader, "load_bundle", load)
    stuck = [Entry("a", version, tiny_repository / "tiny-image" / "1") for version in range(1, 41)]
    sound = Entry("b", 1, tiny_repository / "tiny-text" / "1")

    async def run():
        config, metrics = read_config(repository=tiny_repository), Metrics()

        async def one(entry):
            await load_entry(entry, config, metrics)
            if entry is sound:
                go.set()

        await load_entries([*stuck, sound], one, nothing, num_places=2)
        # All of them bear one name, by which `stop` waits for threads.
        for timeout in (0, 10):
            stopped = [entry.model.stop(timeout) for entry in [*stuck, sound]]
        assert all(stopped)

    asyncio.run(run())
    assert model_pb2.MODEL_STATE_READY == sound.state


def test_a_golden_request_without_an_end_is_refused(tiny_repository, monkeypatch):
    """The model is told to end; what it was at is remembered, because Python would wait for it at the exit."""
    monkeypatch.setattr(loader, "GOLDEN_S", 3)  # enough for a slow machine to come where it hangs
    monkeypatch.setattr(loader, "STOP_S", 0.05)
    go = threading.Event()
    monkeypatch.setattr(explain_proof, "_verify_heads", lambda *_: go.wait())
    entry = Entry("a", 1, tiny_repository / "tiny-translate" / "1")
    try:
        asyncio.run(load_entry(entry, read_config(repository=tiny_repository), Metrics()))
    finally:
        go.set()

    assert (model_pb2.MODEL_STATE_FAILED, True) == (entry.state, entry.is_stuck)
    assert "the golden request has no answer after 3 s" == entry.error


def test_a_default_that_no_request_may_ask_for_is_refused(tmp_path):
    """Before a graph is opened, and as anything else that a manifest may not say: no metric names the model."""
    draft = generate(tmp_path / "m" / "1")
    draft.manifest.decoding.sampling.top_p = -1
    entry, metrics = Entry("m", 1, draft.write()), Metrics()
    asyncio.run(load_entry(entry, read_config(repository=tmp_path), metrics))

    assert model_pb2.MODEL_STATE_FAILED == entry.state
    assert "decoding.sampling.top_p must be above 0 and at most 1, not -1.0" == entry.error
    assert b'model="m"' not in generate_latest(metrics.registry)
