"""Models load side by side, a few at a time, and none holds up those behind it."""

import asyncio
import threading
from functools import partial

import pytest

from drafts import generate
from endless import constant_loop, endless_bundle, endless_folding, loop_in_a_run
from weft_proto.v1 import model_pb2
from weft_server.config import read_config
from weft_server.loading import explain_check, loader
from weft_server.loading.loader import load_entries, load_entry
from weft_server.models.registry import RegistryEntry
from weft_server.runtime import graph_sandbox
from weft_server.runtime.cpus import loading_places
from weft_server.telemetry.metrics import Metrics
from weft_server.telemetry.metrics_page import MetricsPage


@pytest.fixture
def entries(tmp_path):
    """Six entries, in their order."""
    return [RegistryEntry(name, 1, tmp_path) for name in "abcdef"]


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
    stuck = [RegistryEntry("a", version, tiny_repository / "tiny-image" / "1") for version in range(1, 41)]
    sound = RegistryEntry("b", 1, tiny_repository / "tiny-text" / "1")

    async def run():
        config, metrics = read_config(repository=tiny_repository.folder), Metrics()

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
    monkeypatch.setattr(loader, "STOP_S", 0.05)
    go = threading.Event()
    monkeypatch.setattr(explain_check, "_verify_heads", lambda *_: go.wait())
    entry = RegistryEntry("a", 1, tiny_repository / "tiny-translate" / "1")
    try:
        # Enough for a slow machine to come where it hangs.
        asyncio.run(load_entry(entry, read_config(repository=tiny_repository.folder, load_timeout_s=5), Metrics()))
    finally:
        go.set()

    assert (model_pb2.MODEL_STATE_FAILED, True) == (entry.state, entry.is_stuck)
    assert "it is not ready after 5 s" in entry.error


def test_a_default_that_no_request_may_ask_for_is_refused(tmp_path):
    """Before a graph is opened, and as anything else that a manifest may not say: no metric names the model."""
    draft = generate(tmp_path / "m" / "1")
    draft.manifest.decoding.sampling.top_p = -1
    entry, metrics = RegistryEntry("m", 1, draft.write()), Metrics()
    asyncio.run(load_entry(entry, read_config(repository=tmp_path), metrics))

    assert model_pb2.MODEL_STATE_FAILED == entry.state
    assert "decoding.sampling.top_p must be above 0 and at most 1, not -1.0" == entry.error
    assert b'model="m"' not in MetricsPage(metrics).render()[1]


@pytest.mark.parametrize("make", [loop_in_a_run, constant_loop])
def test_a_graph_without_an_end_is_refused_and_ended(tiny_repository, tmp_path, make):
    """When the time of a load is over. Its run ends, its threads end, and its memory is free."""
    entry = RegistryEntry("m", 1, endless_bundle(tmp_path / "m" / "1", tiny_repository / "tiny-text" / "1", make))
    asyncio.run(load_entry(entry, read_config(repository=tmp_path, load_timeout_s=2), Metrics()))

    assert (model_pb2.MODEL_STATE_FAILED, False) == (entry.state, entry.is_stuck)
    assert "it is not ready after 2 s; --load-timeout-s (WEFT_LOAD_TIMEOUT_S) gives it longer" == entry.error
    assert entry.model is None


def test_a_decoder_without_an_end_is_refused_and_ended(tiny_repository, tmp_path):
    """Its runs are bound to memory, which is another way into ONNX Runtime."""
    bundle = tiny_repository / "tiny-translate" / "1"
    entry = RegistryEntry("m", 1, endless_bundle(tmp_path / "m" / "1", bundle, loop_in_a_run, "decoder.onnx"))
    asyncio.run(load_entry(entry, read_config(repository=tmp_path, load_timeout_s=2), Metrics()))

    assert (model_pb2.MODEL_STATE_FAILED, False) == (entry.state, entry.is_stuck)
    assert "it is not ready after 2 s" in entry.error


def test_what_a_graph_computes_as_it_is_opened_is_bounded(tiny_repository, tmp_path, monkeypatch):
    """It is done in a process of its own first, which has so much time of a processor."""
    bundle = tiny_repository / "tiny-text" / "1"
    monkeypatch.setattr(graph_sandbox, "CPU_S", 3)
    entry = RegistryEntry("m", 1, endless_bundle(tmp_path / "m" / "1", bundle, endless_folding))
    asyncio.run(load_entry(entry, read_config(repository=tmp_path), Metrics()))

    assert (model_pb2.MODEL_STATE_FAILED, False) == (entry.state, entry.is_stuck)
    assert "classifier.onnx takes more than 3 s of a processor to be opened" == entry.error


def test_a_graph_that_is_opened_for_ever_is_ended_with_its_load(tiny_repository, tmp_path):
    """The process in which it is tried is killed, and nothing is left of it."""
    bundle = tiny_repository / "tiny-text" / "1"
    entry = RegistryEntry("m", 1, endless_bundle(tmp_path / "m" / "1", bundle, endless_folding))
    asyncio.run(load_entry(entry, read_config(repository=tmp_path, load_timeout_s=3), Metrics()))

    assert (model_pb2.MODEL_STATE_FAILED, False) == (entry.state, entry.is_stuck)
    assert "it is not ready after 3 s" in entry.error


def test_a_graph_that_computes_a_little_as_it_is_opened_is_ready(tiny_repository, tmp_path):
    """Graphs of other exporters do."""
    bundle = tiny_repository / "tiny-text" / "1"
    entry = RegistryEntry("m", 1, endless_bundle(tmp_path / "m" / "1", bundle, partial(endless_folding, num=2, size=2)))

    async def run():
        await load_entry(entry, read_config(repository=tmp_path), Metrics())
        assert (model_pb2.MODEL_STATE_READY, "") == (entry.state, entry.error)
        assert await asyncio.to_thread(entry.model.stop, 30)

    asyncio.run(run())
