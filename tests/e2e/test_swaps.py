"""A hundred swaps of one model under load: `make test-swaps`. It prints what it measured."""
# ruff: noqa: T201 - for who runs it

import os
import platform
import time

import grpc
import pytest

from process import ServerProcess
from under_load import Load
from weft_proto.v1 import admin_pb2, admin_pb2_grpc

pytestmark = [pytest.mark.e2e, pytest.mark.long]
NUM_SWAPS = 100
# Swaps until caches, huge pages and the allocator's arenas are as they stay.
NUM_FIRST = 20
QUIET_S = 30.0


def percentile(values, share):
    """A percentile, by the nearest rank."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def translate(client):
    """One answer of the model that is swapped."""
    return client.translate("the cat drinks milk .", model="en-es").text


def classify(client):
    """One answer of another model, and when it came and how long it took."""
    started = time.monotonic()
    answer = client.classify("the team won the match", model="topics")
    return started, time.monotonic() - started, answer.labels


def times_of(answers, since, until):
    """How long the other model's answers took that were asked for in a stretch of time, in milliseconds."""
    return [1000 * seconds for started, seconds, _ in answers if since <= started < until]


def test_a_hundred_swaps_under_load(demo_repository, tmp_path):
    """No call fails, another model's p99 stays within twice its own, and the memory does not grow."""
    (tmp_path / "en-es").mkdir()
    for version in "12":
        (tmp_path / "en-es" / version).symlink_to(demo_repository / "en-es" / "1")
    (tmp_path / "topics").symlink_to(demo_repository / "topics")
    with (
        ServerProcess(tmp_path, admin=True, admin_port=0) as server,
        grpc.insecure_channel(server.wait_for("listening")["admin"]) as channel,
    ):
        server.wait_for("ready")
        admin = admin_pb2_grpc.ModelAdminServiceStub(channel)
        swap(admin, 2)
        with Load(server.target, translate, classify) as load:
            marks = [time.monotonic()]
            time.sleep(QUIET_S)
            marks.append(time.monotonic())
            sizes, seconds = [], []
            for number in range(NUM_SWAPS):
                seconds.append(swap(admin, 1 + number % 2))
                sizes.append(server.rss_bytes() / 1e6)
            marks.append(time.monotonic())
            time.sleep(QUIET_S)
            marks.append(time.monotonic())
        before, during, after = (times_of(load.answers[1], *marks[i : i + 2]) for i in range(3))
        early, late = sizes[NUM_FIRST : NUM_FIRST + 20], sizes[-20:]
        growth = sum(late) / len(late) - sum(early) / len(early)
        print(
            f"\n{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
        )
        print(f"swaps: {NUM_SWAPS}, each {sorted(seconds)[NUM_SWAPS // 2]:.2f} s (median), errors: {len(load.errors)}")
        print(f"answers: {len(load.answers[0])} of the swapped model, {len(load.answers[1])} of the other")
        for name, times in (("before", before), ("during", during), ("after", after)):
            p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
            print(f"the other model, {name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {len(times)} calls")
        print(
            f"memory: {min(sizes):.0f} to {max(sizes):.0f} MB; the last 20 swaps {growth:+.1f} MB over swaps 21 to 40"
        )

    assert [] == load.errors
    assert 1 == len(set(load.answers[0]))
    assert 1 == len({labels for _, _, labels in load.answers[1]})
    assert percentile(during, 0.99) <= 2 * percentile(before + after, 0.99)
    assert growth <= 0.02 * sizes[NUM_FIRST]


def swap(admin, version):
    """Swap, and tell how many seconds it took."""
    started = time.monotonic()
    answer = admin.SwapModel(admin_pb2.SwapModelRequest(name="en-es", version=version), timeout=120)
    assert version == answer.model.version
    return time.monotonic() - started
