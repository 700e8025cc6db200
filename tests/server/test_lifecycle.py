"""Models come, go, sleep and wake while others serve; what is refused changes nothing."""

import asyncio
import gc
import os
import shutil
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from lifecycles import Keeping, repository_of
from waiting import until
from weft_proto.tasks import TASKS
from weft_proto.v1 import common_pb2, model_pb2
from weft_server.errors import (
    BundleError,
    BundleRefused,
    Draining,
    InvalidRequest,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    RequestError,
)
from weft_server.lifecycle import lifecycle, waking
from weft_server.loading import loader, memory_check
from weft_server.models.registry import RegistryEntry
from weft_server.models.version_labels import VersionLabels
from weft_server.rpc.model_service import model_proto

READY, SLEEPING = model_pb2.MODEL_STATE_READY, model_pb2.MODEL_STATE_SLEEPING
DRAINING = model_pb2.MODEL_STATE_DRAINING
TASK = common_pb2.TASK_CLASSIFY_TEXT
M = common_pb2.ModelSelector(name="m")


@pytest.fixture
def two(tiny_repository, tmp_path):
    """A repository with two versions of one model."""
    return repository_of(tmp_path, tiny_repository / "tiny-text" / "1", 1, 2)


def _spoil(directory):
    path = directory / "bundle.json"
    path.write_text(path.read_text().replace('"precision": "PRECISION_FP32"', '"precision": 0'))


def test_a_version_loads_and_another_takes_over(two):
    """Load gives the highest to who names none, swap leaves one version alone, and each step is told."""

    async def run():
        async with Keeping(two) as kept:
            await kept.lifecycle.load("m", 1)
            assert 1 == (await kept.take(TASK, M))[1].version
            await kept.lifecycle.load("m")
            assert 2 == (await kept.take(TASK, M))[1].version
            assert {("m", "1"), ("m", "2")} == kept.series()
            for _ in "ab":  # once more changes nothing
                await kept.lifecycle.load("m", 2)
            kept.end_calls()
            entry, unloaded = await kept.lifecycle.swap("m", 1)
            assert (1, [2]) == (entry.version, unloaded)
            assert {("m", 1): READY} == kept.standing()
            assert {("m", "1")} == kept.series()
            await kept.lifecycle.unload("m", 1)
            assert ({}, set()) == (kept.standing(), kept.series())
            assert ("m", []) == kept.changes[-1]

    asyncio.run(run())


@pytest.mark.parametrize("change", ["load", "swap"])
def test_a_bundle_that_is_refused_changes_nothing(two, change):
    """Neither models nor labels nor series; the caller is told why."""
    _spoil(two / "m" / "2")

    async def run():
        async with Keeping(two) as kept:
            await kept.lifecycle.load("m", 1, "stable")
            before = (kept.standing(), kept.series(), kept.models.labels("m"), list(kept.changes))
            with pytest.raises(BundleRefused, match=r"^model 'm' version 2 is refused: precision 0 is unknown"):
                await getattr(kept.lifecycle, change)("m", 2)
            assert before == (kept.standing(), kept.series(), kept.models.labels("m"), kept.changes)

    asyncio.run(run())


def test_a_bundle_of_the_start_that_is_refused_again_keeps_its_series(two):
    """It is still there, and does not answer: an alert asks its series."""
    _spoil(two / "m" / "2")

    async def run():
        async with Keeping(two) as kept:
            kept.models.put(RegistryEntry("m", 2, two / "m" / "2", model_pb2.MODEL_STATE_FAILED, "broken"))
            kept.metrics.for_model("m", 2, "")
            with pytest.raises(BundleRefused):
                await kept.lifecycle.load("m", 2)
            assert {("m", "2")} == kept.series()

    asyncio.run(run())


def test_a_bundle_whose_golden_answer_is_wrong_changes_nothing(two, monkeypatch):
    """Though it was loaded and warmed: its memory and its series go again."""

    async def wrong(_):
        raise BundleError("the golden answer is another")

    async def run():
        async with Keeping(two) as kept:
            await kept.lifecycle.load("m", 1)
            monkeypatch.setattr(loader, "verify_golden", wrong)
            threads = threading.active_count()
            with pytest.raises(BundleRefused, match=r"the golden answer is another"):
                await kept.lifecycle.swap("m", 2)
            assert ({("m", 1): READY}, {("m", "1")}) == (kept.standing(), kept.series())
            await until(lambda: threading.active_count() <= threads + 1)  # the loop may have made one of its own

    asyncio.run(run())


def test_a_bundle_that_does_not_fit_beside_what_runs_is_refused_in_words(two, monkeypatch):
    """The room that is left decides, as at the start."""

    async def run():
        async with Keeping(two) as kept:
            await kept.lifecycle.load("m", 1)
            monkeypatch.setattr(memory_check, "free_memory", lambda: 1000)
            with pytest.raises(BundleRefused, match=r"of memory are free"):
                await kept.lifecycle.load("m", 2)
            assert {("m", 1): READY} == kept.standing()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "version"),
    [("m", 3), ("n", None), ("../m", 1), ("m/1", None), ("..", None), ("", None), (".", 1), ("m\0", 1), ("é" * 9, 1)],
)
def test_only_what_the_repository_lists_can_be_loaded(two, name, version):
    """A name is compared with the folders that are there. It never becomes part of a path."""

    async def run():
        async with Keeping(two) as kept:
            for change in (kept.lifecycle.load, kept.lifecycle.swap):
                with pytest.raises(ModelNotFound):
                    await change(name, version)
            with pytest.raises(ModelNotFound):
                await kept.lifecycle.unload(name, version or 1)
            # What strangers name leaves nothing behind.
            assert {"m"} >= set(kept.lifecycle.locks)

    asyncio.run(run())


def test_a_repository_that_cannot_be_read_is_told_without_its_path(two):
    """The path is for the log. When it can be read again, models load."""

    async def run():
        async with Keeping(two) as kept:
            there = two.rename(two.with_name("elsewhere"))
            for change in (kept.lifecycle.load, kept.lifecycle.swap):
                with pytest.raises(BundleRefused) as refused:
                    await change("m", 2)
                assert "the repository cannot be read, the server's log says why" == refused.value.message
            there.rename(two)
            await kept.lifecycle.load("m", 2)
            assert {("m", 2): READY} == kept.standing()

    asyncio.run(run())


def test_calls_finish_on_the_version_that_leaves_and_its_memory_is_free_then(two):
    """It is found no more, and not waited for by others; nothing of it waits for the garbage collector."""

    async def run():
        async with Keeping(two) as kept:
            await kept.lifecycle.load("m", 1)
            call, model = await kept.take(TASK, M)
            swap = asyncio.create_task(kept.lifecycle.swap("m", 2))
            await until(lambda: kept.standing() == {("m", 1): DRAINING, ("m", 2): READY})
            assert 2 == (await kept.take(TASK, M))[1].version
            await asyncio.sleep(0.05)
            assert not swap.done()
            gone = weakref.ref(model)
            gc.collect()
            gc.disable()
            try:
                del model
                call.let_go()
                await swap
                assert gone() is None
            finally:
                gc.enable()

    asyncio.run(run())


def test_a_call_that_does_not_end_is_ended_after_the_drain_timeout(two, monkeypatch):
    """What its engine has ends as MODEL_NOT_READY, and the version leaves all the same."""
    monkeypatch.setattr(lifecycle, "STOP_S", 0.05)

    async def run():
        async with Keeping(two, drain_timeout_s=0.05) as kept:
            await kept.lifecycle.load("m", 1)
            _, model = await kept.take(TASK, M)
            await kept.lifecycle.unload("m", 1)
            assert {} == kept.standing()
            with pytest.raises(ModelNotReady, match=r"was unloaded"):
                model.engine.submit()

    asyncio.run(run())


def test_a_label_comes_with_its_version_and_goes_with_it(two):
    """A canary gets its share from its first moment; a swap hands stable on."""

    async def run():
        async with Keeping(two) as kept:
            await kept.lifecycle.load("m", 1)
            await kept.lifecycle.load("m", 2, "canary", 0.5)
            versions = {(await kept.take(TASK, M, f"{number}"))[1].version for number in range(50)}
            assert {1, 2} == versions
            kept.end_calls()
            with pytest.raises(ModelNotFound):
                await kept.lifecycle.label("m", "stable", 3)
            with pytest.raises(InvalidRequest):
                await kept.lifecycle.load("m", 2, "stable", 0.5)
            await kept.lifecycle.label("m", "stable", 1)
            assert VersionLabels(1, 2, 0.5) == kept.models.labels("m")
            await kept.lifecycle.swap("m", 2)
            assert VersionLabels(2) == kept.models.labels("m")
            await kept.lifecycle.unload("m", 2)
            assert VersionLabels() == kept.models.labels("m")

    asyncio.run(run())


def test_a_swap_to_the_first_version_of_a_model_is_told(two):
    """Nothing leaves. Who watches the model's health hears of it all the same."""

    async def run():
        async with Keeping(two) as kept:
            await kept.lifecycle.swap("m", 1)
            assert ("m", [1]) == kept.changes[-1]

    asyncio.run(run())


def test_a_version_that_was_refused_bears_no_label(two):
    """Requests without a version would go to it, and find nothing, beside one that answers."""

    async def run():
        async with Keeping(two) as kept:
            await kept.lifecycle.load("m", 1)
            kept.models.put(RegistryEntry("m", 2, two / "m" / "2", model_pb2.MODEL_STATE_FAILED, "broken"))
            with pytest.raises(BundleRefused, match=r"bears no label$"):
                await kept.lifecycle.label("m", "stable", 2)
            assert VersionLabels() == kept.models.labels("m")

    asyncio.run(run())


def test_the_same_unload_asked_again_waits_for_the_first(two):
    """Both come back when the calls have ended and the memory is free."""

    async def run():
        async with Keeping(two) as kept:
            await kept.lifecycle.load("m", 1)
            await kept.take(TASK, M)
            first = asyncio.create_task(kept.lifecycle.unload("m", 1))
            await until(lambda: {("m", 1): DRAINING} == kept.standing())
            again = asyncio.create_task(kept.lifecycle.unload("m", 1))
            await asyncio.sleep(0.05)
            assert (False, False) == (first.done(), again.done())
            kept.end_calls()
            await asyncio.gather(first, again)
            assert {} == kept.standing()

    asyncio.run(run())


def test_changes_of_one_model_come_one_after_the_other(two):
    """Whatever order they come to their turn in, each sees what the one before left, and none fails."""

    async def run():
        async with Keeping(two) as kept:
            asked = [kept.lifecycle.load("m", 1), kept.lifecycle.load("m", 1), kept.lifecycle.swap("m", 2)]
            await asyncio.gather(*asked, kept.lifecycle.swap("m", 1), kept.lifecycle.swap("m", 2))
            assert {READY} == set(kept.standing().values())

    asyncio.run(run())


def test_a_change_goes_on_when_its_caller_goes(two, monkeypatch):
    """Once it has begun. One that still waits for its turn is not made."""
    go, load_bundle, come = threading.Event(), loader.load_bundle, []
    monkeypatch.setattr(loader, "load_bundle", lambda directory: (go.wait(), load_bundle(directory))[1])

    class Noting(asyncio.Lock):
        async def acquire(self):
            come.append(1)
            return await super().acquire()

    async def run():
        async with Keeping(two) as kept:
            kept.lifecycle.locks["m"] = Noting()
            load = asyncio.create_task(kept.lifecycle.load("m", 1))
            await until(lambda: kept.lifecycle.changes)
            waits = asyncio.create_task(kept.lifecycle.load("m", 2))
            await until(lambda: 2 == len(come))
            load.cancel()
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            go.set()
            await until(lambda: not kept.lifecycle.changes)
            assert {("m", 1): READY} == kept.standing()

    try:
        asyncio.run(run())
    finally:
        go.set()


def test_a_server_that_leaves_ends_its_changes(two, monkeypatch):
    """Who waits is told that it drains, and who asks later too; threads that are left are remembered."""
    go, load_bundle = threading.Event(), loader.load_bundle
    monkeypatch.setattr(loader, "load_bundle", lambda directory: (go.wait(), load_bundle(directory)))

    async def run():
        async with Keeping(two) as kept:
            load = asyncio.create_task(kept.lifecycle.load("m", 1))
            await until(lambda: kept.lifecycle.changes)
            kept.lifecycle.close()
            with pytest.raises(Draining):
                await load
            with pytest.raises(Draining):
                await kept.lifecycle.load("m", 2)
            assert kept.lifecycle.is_stuck
            assert {} == kept.standing()

    try:
        asyncio.run(run())
    finally:
        go.set()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
@pytest.mark.parametrize(("threads", "times"), [(1, 1), (2, 0)])
def test_a_load_gives_way_and_what_it_leaves_does_not(tiny_repository, tmp_path, monkeypatch, threads, times):
    """The thread that loads runs while others leave CPUs. All that it leaves behind runs as it would otherwise."""
    given, give_way = [], loader.give_way

    def counted():
        give_way()
        given.append(_priorities()[threading.get_native_id()])

    monkeypatch.setattr(loader, "give_way", counted)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    repository = repository_of(tmp_path, tiny_repository / "tiny-generate" / "1", 1)

    async def run():
        async with Keeping(repository, threads=threads) as kept:
            await kept.lifecycle.load("m", 1)
            await until(lambda: set(_priorities().values()) == {own})
            assert [min(19, own + 10)] * times == given

    asyncio.run(run())


def _priorities():
    """The nice value of each thread of this process, by its number."""
    stats = []
    for path in Path("/proc/self/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            stats.append((path.parent.name, path.read_text()))
    return {int(thread): int(stat.rpartition(")")[2].split()[16]) for thread, stat in stats}


async def _asleep(kept):
    await kept.lifecycle.load("m", 1)
    dozing = asyncio.create_task(kept.lifecycle.doze())
    await until(lambda: kept.standing() == {("m", 1): SLEEPING} and not kept.lifecycle.is_changing("m"))
    dozing.cancel()
    return kept.models.at("m", 1)


def test_a_model_that_nobody_asks_for_sleeps_and_one_load_wakes_it_for_all(two):
    """It leaves the memory, and stays listed and ready; a hundred requests at once share one load."""

    async def run():
        async with Keeping(two, idle_unload_s=0.05) as kept:
            entry = await _asleep(kept)
            assert entry.model is None
            assert list(entry.card.labels)
            assert {("m", "1")} == kept.series()
            taken = await asyncio.gather(*(kept.take(TASK, M) for _ in range(100)))
            assert 1 == len({model for _, model in taken})
            assert {("m", 1): READY} == kept.standing()
            assert 2 == kept.metrics.loads["ready"].value

    asyncio.run(run())


def test_a_model_with_a_call_does_not_sleep(two):
    """However long the call takes; its time begins when the call ends."""

    async def run():
        async with Keeping(two, idle_unload_s=0.05) as kept:
            await kept.lifecycle.load("m", 1)
            call, model = await kept.take(TASK, M)
            dozing = asyncio.create_task(kept.lifecycle.doze())
            await asyncio.sleep(0.3)
            assert {("m", 1): READY} == kept.standing()
            assert 0 == model.idle_s
            call.let_go()
            await until(lambda: kept.standing() == {("m", 1): SLEEPING})
            dozing.cancel()

    asyncio.run(run())


def test_a_model_that_is_asked_for_while_it_falls_asleep_stays_awake(two, monkeypatch):
    """What it says of itself asleep is put together first. Whoever comes meanwhile keeps the model."""
    asked, card_of = [], lifecycle.card_of

    async def run():
        async with Keeping(two, idle_unload_s=0.05) as kept:
            entry = await kept.lifecycle.load("m", 1)
            model = entry.model

            async def late(*of):
                asked.append(await kept.take(TASK, M))
                return await card_of(*of)

            monkeypatch.setattr(lifecycle, "card_of", late)
            dozing = asyncio.create_task(kept.lifecycle.doze())
            await until(lambda: asked)
            await kept.lifecycle.load("m", 1)  # after the change that is under way
            assert (READY, model) == (entry.state, entry.model)
            dozing.cancel()

    asyncio.run(run())


def test_a_model_s_idle_time_begins_when_it_is_found(two, monkeypatch):
    """Loading may take longer than a model may be idle. It is no reason to sleep at once, at a load and at a wake."""

    async def slow(model):
        await verify_golden(model)
        model.idle_since -= 1000

    verify_golden = loader.verify_golden
    monkeypatch.setattr(loader, "verify_golden", slow)
    monkeypatch.setattr(lifecycle, "DOZE_S", 0.01)

    async def run():
        async with Keeping(two, idle_unload_s=900) as kept:
            entry = await kept.lifecycle.load("m", 1)
            dozing = asyncio.create_task(kept.lifecycle.doze())
            assert entry.model.idle_s < 900
            entry.model.idle_since -= 1000
            await until(lambda: SLEEPING == entry.state and not kept.lifecycle.is_changing("m"))
            await entry.wake()
            assert (READY, True) == (entry.state, entry.model.idle_s < 900)
            dozing.cancel()

    asyncio.run(run())


def test_what_was_counted_outlasts_a_sleep(two):
    """The counters go on; what a model does to prove itself is in none, at the start or later."""

    async def run():
        async with Keeping(two, idle_unload_s=0.05) as kept:
            await kept.lifecycle.load("m", 1)
            metrics = kept.models.at("m", 1).model.metrics
            metrics.prompt_tokens.inc(7)
            metrics.session_run.observe(0.5, 3)
            await _asleep(kept)
            assert {"model_ready": 1.0} == metrics.gauges()
            _, model = await kept.take(TASK, M)
            assert metrics is model.metrics
            assert 7 == metrics.prompt_tokens.value
            assert (3, 1.5) == (metrics.session_run.snapshot()[0][-1][1], metrics.session_run.snapshot()[1])

    asyncio.run(run())


@pytest.mark.parametrize(("other", "task"), [("tiny-text", TASK), ("tiny-tags", common_pb2.TASK_TAG)])
def test_files_that_changed_during_a_sleep_are_those_that_wake(two, tiny_repository, monkeypatch, other, task):
    """They are verified as at the start, golden answer too. The log says it, and nothing of the old ones is left."""
    verified, verify_golden = [], loader.verify_golden
    monkeypatch.setattr(loader, "verify_golden", lambda model: verified.append(model) or verify_golden(model))

    async def run():
        async with Keeping(two, idle_unload_s=0.05) as kept:
            entry = await _asleep(kept)
            shutil.rmtree(two / "m" / "1")
            shutil.copytree(tiny_repository / other / "1", two / "m" / "1")
            manifest = two / "m" / "1" / "bundle.json"
            manifest.write_text(manifest.read_text().replace('"description": "', '"description": "Another. '))
            with capture_logs() as logs:
                await entry.wake()
            assert "model woke with other files" in [each["event"] for each in logs]
            shown = await model_proto(entry, kept.models, kept.config)
            assert "Another." in shown.description
            _, model = await kept.take(task, M)
            assert [model] == verified[1:]
            assert [("m", "1", TASKS[task].name)] == [labels for labels in kept.metrics.models if labels[0]]
            if task != TASK:
                with pytest.raises(InvalidRequest, match=r"is for tag, not classify_text"):
                    await kept.take(TASK, M)

    asyncio.run(run())


def test_the_same_files_wake_without_a_word(two):
    """Nothing has changed."""

    async def run():
        async with Keeping(two, idle_unload_s=0.05) as kept:
            entry = await _asleep(kept)
            with capture_logs() as logs:
                await entry.wake()
            assert [] == [each for each in logs if each["log_level"] != "info"]

    asyncio.run(run())


def test_a_model_that_cannot_be_woken_is_not_ready_and_is_tried_again_later(two, monkeypatch):
    """Each that waits is told why; the next ones too, without a try of their own, for some seconds."""

    async def run():
        async with Keeping(two, idle_unload_s=0.05) as kept:
            entry = await _asleep(kept)
            manifest = two / "m" / "1" / "bundle.json"
            kept_away = manifest.rename(two / "away")
            results = await asyncio.gather(*(kept.take(TASK, M) for _ in range(5)), return_exceptions=True)
            assert [ModelNotReady] * 5 == [type(each) for each in results]
            assert 5 == len({id(each) for each in results})
            with pytest.raises(ModelNotReady, match=r"model 'm' version 1 could not be woken: bundle\.json is missing"):
                await kept.take(TASK, M)
            assert 1 == kept.metrics.loads["refused"].value
            assert SLEEPING == entry.state
            assert entry.error
            kept_away.rename(manifest)
            monkeypatch.setattr(waking, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + waking.PAUSE_S))
            await kept.take(TASK, M)
            assert (READY, "") == (entry.state, entry.error)

    asyncio.run(run())


def test_only_so_many_wait_for_a_model_to_wake(two):
    """One request more than may wait is refused at once."""

    async def run():
        async with Keeping(two, idle_unload_s=0.05, max_queued_requests=3) as kept:
            await _asleep(kept)
            results = await asyncio.gather(*(kept.take(TASK, M) for _ in range(4)), return_exceptions=True)
            (refused,) = [each for each in results if isinstance(each, RequestError)]
            assert isinstance(refused, Overloaded)
            assert "QUEUE_FULL" == refused.reason

    asyncio.run(run())


def test_a_request_of_another_kind_wakes_nobody(two):
    """What a sleeping model is for is known."""

    async def run():
        async with Keeping(two, idle_unload_s=0.05) as kept:
            await _asleep(kept)
            with pytest.raises(InvalidRequest, match=r"is for classify_text, not tag"):
                await kept.take(common_pb2.TASK_TAG, M)
            assert {("m", 1): SLEEPING} == kept.standing()

    asyncio.run(run())


def test_the_load_goes_on_when_the_request_that_woke_goes(two):
    """Its deadline is no reason to begin anew for the next."""

    async def run():
        async with Keeping(two, idle_unload_s=0.05) as kept:
            await _asleep(kept)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await kept.take(TASK, M)
            await until(lambda: kept.standing() == {("m", 1): READY})

    asyncio.run(run())


def test_who_waits_for_a_wake_when_the_server_leaves_is_told(two, monkeypatch):
    """Each gets an error of its own, for its frames are let go."""
    go, load_bundle = threading.Event(), loader.load_bundle

    async def run():
        async with Keeping(two, idle_unload_s=0.05) as kept:
            await _asleep(kept)
            monkeypatch.setattr(loader, "load_bundle", lambda directory: (go.wait(), load_bundle(directory)))
            waiting = [asyncio.create_task(kept.take(TASK, M)) for _ in range(3)]
            await until(lambda: kept.lifecycle.changes)
            kept.lifecycle.close()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [Draining] * 3 == [type(each) for each in results]
            assert 3 == len({id(each) for each in results})

    try:
        asyncio.run(run())
    finally:
        go.set()


def test_a_swap_wakes_what_sleeps(two):
    """It is warm before it takes over."""

    async def run():
        async with Keeping(two, idle_unload_s=0.05) as kept:
            await _asleep(kept)
            await kept.lifecycle.load("m", 2)
            await kept.lifecycle.swap("m", 1)
            assert {("m", 1): READY} == kept.standing()

    asyncio.run(run())
